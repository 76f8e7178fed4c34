#include "report/examine.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "data/catalog.h"
#include "eval/features.h"
#include "eval/judge.h"
#include "eval/tsne.h"
#include "report/pictures.h"

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

void find_map(const data::TrainTest& sets, run::Model& model, const ExamineOptions& options,
              const std::string& name, const std::string& source, Examination& out) {
  const bool test = sets.test.size() > 0;
  const auto picked = data::limit(test ? sets.test : sets.train, options.map_images, options.seed);
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
  map.title = fmt::format("t-SNE of {} {} images of {}", n, test ? "test" : "train", source);
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
  if (!attempt("no confusion matrix and no map", [&] {
        model = record.run.load("last");
        engine::place(*model.encoder, model.head.get(), options.placement);
        sets = data::load(source);
      }))
    return out;
  attempt("no confusion matrix",
          [&] { find_confusion(sets, model, options, record.name, source.source, out); });
  if (options.map_images > 0)
    attempt("no map", [&] { find_map(sets, model, options, record.name, source.source, out); });
  return out;
}

}  // namespace ebclr::report
