#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/eval_command.h"
#include "cli/eval_options.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "eval/export_features.h"
#include "eval/tsne.h"
#include "plot/plot.h"

namespace ebclr::cli {
namespace {

/// Images fit for the encoder, what to know about them, and files that could not be read.
struct Loaded {
  data::ImageSet set = {};
  std::vector<std::string> notes = {};
  std::vector<data::FileProblem> problems = {};
};

/// The images of a split.
Loaded load_split(const EncoderOptions& source, const run::Run& run, const run::Model& model,
                  const std::string& split, int64_t most, uint64_t seed) {
  auto sets = source.images(run, /*rest=*/split == "all", /*labels=*/false);
  Loaded out{.problems = std::move(sets.problems)};
  const auto notes = sets.train.notes;
  auto picked = eval::pick_split(std::move(sets), split);
  if (most > 0) picked = data::limit(picked, most, seed);
  auto adapted =
      eval::adapt(std::move(picked), model.encoder->options().channels, model.image_shape, source.grayscale);
  out.set = std::move(adapted.set);
  out.notes = notes;
  out.notes.insert(out.notes.end(), adapted.notes.begin(), adapted.notes.end());
  return out;
}

/// The images that were named one by one; what cannot be read is left out, as in a folder.
Loaded load_files(const EncoderOptions& source, const std::vector<std::string>& files,
                  const run::Model& model) {
  const int64_t size = source.image_size > 0 ? source.image_size : model.side;
  Loaded out;
  auto adapted = eval::adapt(read_named(files, size, source.runtime.threads, out.problems),
                             model.encoder->options().channels, model.image_shape, true);
  out.set = std::move(adapted.set);
  out.notes = std::move(adapted.notes);
  for (const auto& p : out.problems)
    out.notes.push_back(core::one_line(fmt::format("left out: {}: {}", p.path, p.reason)));
  return out;
}

/// Files that could not be read, for JSON; names are made valid UTF-8 by the writer.
nlohmann::json to_json(const std::vector<data::FileProblem>& problems) {
  auto out = nlohmann::json::array();
  for (const auto& p : problems) out.push_back({{"file", p.path}, {"reason", p.reason}});
  return out;
}

struct EmbedArgs {
  EncoderOptions encoder;
  std::string out = "embeddings.npy", what = "features", split;
  std::vector<std::string> files;
  bool csv = false;
};

void run_embed(EmbedArgs& a, const std::shared_ptr<dist::Group>& ranks) {
  auto& source = a.encoder;
  // Before anything takes time.
  eval::check_export_name(a.out);
  if (const auto other = a.split.empty() ? choice_of_images(source) : "--split";
      !a.files.empty() && !other.empty())
    core::usage_error("embed", fmt::format("{} chooses among the images of a set and does not go with "
                                           "pictures that are named one by one",
                                           other));
  if (ranks->rank() == 0) core::check_writable(a.out, "embed");
  const auto run = source.open();
  const auto model = source.load(run);
  const auto where = source.source(run);
  const auto adapted = a.files.empty()
                           ? load_split(source, run, model, source.split_or(run, a.split, "all"), 0, 0)
                           : load_files(source, a.files, model);
  source.require_same(*ranks, model, adapted.set.size());
  ProgressLine line(source.json || ranks->rank() != 0);
  const auto result = eval::export_features(model, adapted.set,
                                            {.out = a.out,
                                             .projection = a.what == "projection",
                                             .csv = a.csv,
                                             .progress = [&](double share) { line.show("features", share); },
                                             .ranks = ranks});
  line.clear();
  if (ranks->rank() != 0) return;
  std::vector<std::string> files;
  for (const auto& f : result.files) files.push_back(f.string());
  if (source.json) {
    print_answer(
        nlohmann::json{{"run", source.run},
                       {"data", a.files.empty() ? nlohmann::json(where.source) : nlohmann::json(a.files)},
                       {"unreadable", to_json(adapted.problems)},
                       {"split", adapted.set.split},
                       {"what", a.what},
                       {"images", result.images},
                       {"dimensions", result.dimensions},
                       {"epoch", model.position.epoch},
                       {"files", files},
                       {"notes", adapted.notes}});
    return;
  }
  for (const auto& n : adapted.notes) fmt::print("note: {}\n", n);
  fmt::print("{} of {} images ({}), {} dimensions: {}\n", a.what, result.images,
             a.files.empty() ? where.source : "given one by one", result.dimensions, core::join(files, ", "));
}

struct MapArgs {
  EncoderOptions encoder;
  std::string out, method = "both", split;
  int64_t points = 2000;
  int iterations = 750;
  double perplexity = 30;
  uint64_t seed = 0;
};

void run_map(MapArgs& a) {
  auto& source = a.encoder;
  plot::check_png_name(a.out);  // before anything takes time
  core::check_writable(a.out, "map");
  const auto run = source.open();
  const auto model = source.load(run);
  const auto where = source.source(run);
  const auto adapted =
      load_split(source, run, model, source.split_or(run, a.split, "test"), a.points, a.seed);
  ProgressLine line(source.json);
  eval::FeatureOptions f;
  f.progress = [&](double share) { line.show("features", share); };
  const auto features = eval::features(*model.encoder, adapted.set, f);
  if (!features.isfinite().all().item<bool>())
    core::usage_error("eval",
                      "features are NaN or infinite; the encoder has diverged: use an earlier checkpoint");
  std::vector<plot::Image> pictures;
  const auto draw = [&](const torch::Tensor& points, const char* name) {
    const bool bare = !adapted.set.labels.defined() || adapted.set.labels.max().item<int64_t>() < 0;
    pictures.push_back(
        bare ? plot::thumbnail_map(
                   points, adapted.set.pixels,
                   {.title = fmt::format("{} of {}, epoch {}", name, adapted.set.name, model.position.epoch),
                    .width = 720,
                    .height = 740})
             : plot::scatter_map(
                   points, adapted.set.labels, adapted.set.class_names,
                   {.title = fmt::format("{} of {} on {}, epoch {}", name, run.config().method.name,
                                         where.source, model.position.epoch),
                    .width = 560,
                    .height = 580}));
  };
  if (a.method != "tsne") draw(eval::pca(features, 2), "PCA");
  if (a.method != "pca") {
    eval::TsneOptions t{.perplexity = a.perplexity, .iterations = a.iterations};
    t.exaggerated = std::min(t.exaggerated, a.iterations / 3);
    t.progress = [&](int done) { line.show("t-SNE", static_cast<double>(done) / a.iterations); };
    draw(eval::tsne(features, t), "t-SNE");
  }
  line.clear();
  plot::write_png(a.out, plot::side_by_side(pictures));
  if (source.json) {
    print_answer(nlohmann::json{{"run", source.run},
                                {"data", where.source},
                                {"unreadable", to_json(adapted.problems)},
                                {"points", features.size(0)},
                                {"method", a.method},
                                {"file", a.out},
                                {"notes", adapted.notes}});
    return;
  }
  for (const auto& n : adapted.notes) fmt::print("note: {}\n", n);
  fmt::print("map of {} {} images: {}\n", features.size(0), where.source, a.out);
}

}  // namespace

void add_embed_command(CLI::App& app) {
  auto o = std::make_shared<EmbedArgs>();
  auto* c = app.add_subcommand("embed", "Write features of images as a NumPy array");
  o->encoder.add(*c);
  c->add_option("FILE", o->files, "Only these pictures (default: all images of the run, or of --data)");
  c->add_option("--out", o->out, "File that ends in .npy (default: embeddings.npy)");
  c->add_option("--what", o->what, "features (before the head) or projection")
      ->check(CLI::IsMember({"features", "projection"}))
      ->capture_default_str();
  c->add_option("--split", o->split, "train, test or all (default: all)")
      ->check(CLI::IsMember({"train", "test", "all"}));
  c->add_flag("--csv", o->csv, "Also write file, label and features as CSV");
  c->callback([o] { with_ranks([&](const auto& ranks) { run_embed(*o, ranks); }); });
}

void add_map_command(CLI::App& app) {
  auto o = std::make_shared<MapArgs>();
  auto* c = app.add_subcommand(
      "map", "Picture of the features in two dimensions: thumbnails, or dots coloured by label");
  o->encoder.add(*c);
  c->add_option("--out", o->out, "PNG to write")->required();
  c->add_option("--method", o->method, "pca, tsne or both")
      ->check(CLI::IsMember({"pca", "tsne", "both"}))
      ->capture_default_str();
  c->add_option("--points", o->points, "Images on the map, class-balanced")
      ->check(CLI::Range(4, 5000))
      ->capture_default_str();
  c->add_option("--split", o->split, "train, test or all (default: all of a folder, test of a named set)")
      ->check(CLI::IsMember({"train", "test", "all"}));
  c->add_option("--perplexity", o->perplexity, "Perplexity of t-SNE")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
  c->add_option("--iterations", o->iterations, "Iterations of t-SNE")
      ->check(CLI::Range(3, 100000))
      ->capture_default_str();
  c->add_option("--seed", o->seed, "Seed of the choice of images")->capture_default_str();
  c->callback([o] { run_map(*o); });
}

}  // namespace ebclr::cli
