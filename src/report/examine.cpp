#include "report/examine.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "data/catalog.h"
#include "eval/clusters.h"
#include "eval/features.h"
#include "eval/judge.h"
#include "eval/tsne.h"
#include "report/pictures.h"
#include "run/images.h"

namespace ebclr::report {
namespace {

void find_confusion(const data::TrainTest& sets, run::Model& model, const ExamineOptions& options,
                    const std::string& name, const std::string& source, Examination& out) {
  const auto judged = eval::make_eval_sets({data::limit(sets.train, options.train, options.seed),
                                            data::limit(sets.test, options.test, options.seed)},
                                           model.encoder->options().channels, model.image_shape, false);
  eval::JudgeOptions judging;
  judging.linear = false;
  judging.lower_k = true;
  const auto progress = [&](const std::string& what, double share) {
    if (options.progress) options.progress(name + ": " + what, share);
  };
  const auto row = eval::judge(eval::encoder_subject("trained encoder", model, judged, progress),
                               judged.classes, judging, progress)
                       .at(0);
  out.accuracy = row.score.accuracy;
  out.low = row.score.interval.low, out.high = row.score.interval.high;
  out.how = fmt::format("kNN ({}, K {}) with {} train and {} test images of {}, checkpoint of epoch {}",
                        row.protocol, row.k, judged.raw.train.size(), judged.raw.test.size(), source,
                        model.position.epoch);
  Matrix m;
  m.names = judged.class_names;
  const auto counts = row.score.confusion.to(torch::kCPU).contiguous();
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const auto* line = counts.data_ptr<int64_t>() + i * counts.size(1);
    m.counts.emplace_back(line, line + counts.size(1));
  }
  m.names.resize(m.counts.size());
  out.confusion = std::move(m);
}

/// Test images; without labels, where a map judges nothing, train images as well.
data::ImageSet images_for_map(const data::TrainTest& sets, const ExamineOptions& options) {
  if (sets.test.size() == 0) return data::limit(sets.train, options.map_images, options.seed);
  auto test = data::limit(sets.test, options.map_images, options.seed);
  const bool labelled = test.labels.defined() && (test.labels != data::kNoLabel).any().item<bool>();
  const int64_t room = options.map_images - test.size();
  if (labelled || room <= 0) return test;
  const auto train = data::limit(sets.train, room, options.seed);
  return data::joined({&train, &test});
}

void find_map(const data::TrainTest& sets, run::Model& model, const ExamineOptions& options,
              const std::string& name, const std::string& source, Examination& out) {
  const auto picked = images_for_map(sets, options);
  const auto adapted = eval::adapt(picked, model.encoder->options().channels, model.image_shape, false);
  const auto features = eval::features(*model.encoder, adapted.set);
  const int64_t n = features.size(0);
  eval::TsneOptions t;
  t.perplexity = std::min(t.perplexity, std::max(1.0, static_cast<double>(n - 1) / 3));
  t.progress = [&](int done) {
    if (options.progress) options.progress(name + ": map", static_cast<double>(done) / t.iterations);
  };
  const auto xy = eval::tsne(features, t).to(torch::kFloat64).contiguous();
  const auto labels = picked.labels.defined() ? picked.labels.to(torch::kInt64).contiguous()
                                              : torch::full({n}, data::kNoLabel, torch::kInt64);
  PointMap map;
  const bool one_split = picked.split == "test" || picked.split == "train";
  map.title = fmt::format("t-SNE of {} {}images of {}", n, one_split ? picked.split + " " : "", source);
  map.class_names = picked.class_names;
  for (int64_t i = 0; i < n; ++i) {
    map.x.push_back(xy.data_ptr<double>()[2 * i]);
    map.y.push_back(xy.data_ptr<double>()[2 * i + 1]);
    map.classes.push_back(labels.data_ptr<int64_t>()[i]);
    if (!picked.files.empty()) map.notes.push_back(picked.files[static_cast<size_t>(i)]);
  }
  // Whole blocks of the JPEG to each image, so that none bleeds into its neighbour.
  map.tile_width = map.tile_height = 32;
  map.sprite_columns = 25;
  map.sprite = sprite(picked.pixels, map.sprite_columns, map.tile_width);
  out.map = std::move(map);
}

// A JPEG of a sheet, at the size at which it is looked at.
std::vector<std::byte> sheet_file(const plot::Image& sheet, const std::string& name) {
  return shrink(plot::encode_png(sheet), 1400, name);
}

std::string file_name(const data::ImageSet& set, int64_t i) {
  return set.files.empty() ? fmt::format("image {}", i)
                           : std::filesystem::path(set.files[static_cast<size_t>(i)]).filename().string();
}

// Rows of images: the first of each and those that follow it.
plot::Image rows_of(const data::ImageSet& set, const std::vector<std::vector<int64_t>>& rows, int columns,
                    const std::vector<std::string>& column_heads, const std::vector<std::string>& row_heads) {
  std::vector<torch::Tensor> images;
  const auto blank = torch::full_like(set.pixels[0], 255);
  for (const auto& row : rows)
    for (int c = 0; c < columns; ++c)
      images.push_back(c < static_cast<int>(row.size()) ? set.pixels[row[static_cast<size_t>(c)]] : blank);
  const int scale = static_cast<int>(std::clamp<int64_t>(96 / set.height(), 1, 3));
  return plot::image_grid(
      torch::stack(images),
      {.columns = columns, .scale = scale, .column_heads = column_heads, .row_heads = row_heads});
}

// What the features say without labels: the nearest of some images, and groups with examples.
void find_sheets(const data::TrainTest& sets, run::Model& model, const ExamineOptions& options,
                 Examination& out) {
  constexpr int kColumns = 9;
  const auto all = data::joined({&sets.train, &sets.test});
  const auto picked = data::limit(all, options.sheet_images, options.seed);
  const auto adapted = eval::adapt(picked, model.encoder->options().channels, model.image_shape, false);
  if (adapted.set.size() < 4) return;
  const auto features = eval::features(*model.encoder, adapted.set);
  const auto n = static_cast<double>(features.size(0));
  const auto groups =
      eval::cluster(features, std::clamp<int64_t>(std::lround(std::sqrt(n / 2)), 2, 10), options.seed);
  std::vector<std::string> heads;
  for (size_t g = 0; g < groups.members.size(); ++g)
    heads.push_back(fmt::format("group {}: {} image{}", g + 1, groups.members[g].size(),
                                groups.members[g].size() == 1 ? "" : "s"));
  out.clusters =
      Picture{sheet_file(rows_of(adapted.set, groups.members, kColumns, {}, heads), "groups"),
              fmt::format("{} images in {} groups by their features, the most typical of each first",
                          features.size(0), groups.members.size())};
  // Questions from every group: one that is typical, and one that is not.
  std::vector<int64_t> asked;
  for (size_t round = 0; round < 2; ++round)
    for (const auto& m : groups.members)
      if (asked.size() < 8 && m.size() > round) asked.push_back(m[round == 0 ? 0 : m.size() / 2]);
  const auto near = eval::nearest_rows(features, torch::tensor(asked, torch::kInt64), kColumns - 1);
  std::vector<std::vector<int64_t>> rows;
  std::vector<std::string> names;
  for (size_t i = 0; i < asked.size(); ++i) {
    rows.push_back({asked[i]});
    for (int64_t k = 0; k < near.size(1); ++k)
      rows.back().push_back(near[static_cast<int64_t>(i)][k].item<int64_t>());
    names.push_back(file_name(adapted.set, asked[i]));
  }
  std::vector<std::string> columns = {"image"};
  for (int k = 1; k < kColumns; ++k) columns.push_back(k == 1 ? "nearest" : fmt::format("{}.", k));
  out.neighbours = Picture{sheet_file(rows_of(adapted.set, rows, kColumns, columns, names), "neighbours"),
                           "images (left) and the ones whose features are most like theirs"};
}

}  // namespace

Examination examine(const RunRecord& record, const ExamineOptions& options) {
  Examination out;
  const auto attempt = [&](const char* what, auto&& work) {
    try {
      work();
      return true;
    } catch (const core::Error& e) {
      out.notes.push_back(fmt::format("{}: {}", what, e.what()));
    } catch (const c10::Error& e) {
      const std::string text = e.what_without_backtrace();
      out.notes.push_back(fmt::format("{}: {}", what, text.substr(0, text.find('\n'))));
    }
    return false;
  };
  run::Model model;
  data::TrainTest sets;
  auto source = record.run.config().data;
  if (!options.data_root.empty()) source.data_root = options.data_root;
  if (!options.data.empty() && run::is_moved(record.run, options.data)) source.source = options.data;
  if (!attempt("no confusion matrix and no map", [&] {
        model = record.run.load("last");
        engine::place(*model.encoder, model.head.get(), options.placement);
        sets = run::load_images(record.run.folder(), source);
        for (const auto& p : sets.problems) out.unreadable.push_back(p.path + ": " + p.reason);
      }))
    return out;
  if (sets.train.labels.defined() && sets.train.labels.max().item<int64_t>() >= 0)
    attempt("no confusion matrix",
            [&] { find_confusion(sets, model, options, record.name, source.source, out); });
  if (options.sheet_images > 0)
    attempt("no neighbours and groups", [&] { find_sheets(sets, model, options, out); });
  if (options.map_images > 0)
    attempt("no map", [&] { find_map(sets, model, options, record.name, source.source, out); });
  return out;
}

}  // namespace ebclr::report
