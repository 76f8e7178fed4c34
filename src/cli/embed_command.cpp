#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/eval_command.h"
#include "cli/eval_options.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/text.h"
#include "eval/export_features.h"
#include "eval/tsne.h"
#include "plot/plot.h"

namespace ebclr::cli {
namespace {

/// The images of a split, fit for the encoder.
eval::Adapted load_split(const EncoderOptions& source, const data::SourceOptions& where,
                         const run::Model& model, const std::string& split, int64_t most, uint64_t seed) {
  auto picked = eval::pick_split(data::load(where), split);
  if (picked.size() == 0)
    core::usage_error("eval", fmt::format("'{}' has no {} images; try another --split", where.source, split));
  if (most > 0) picked = data::limit(picked, most, seed);
  return eval::adapt(std::move(picked), model.encoder->options().channels, model.image_shape,
                     source.grayscale);
}

struct EmbedArgs {
  EncoderOptions encoder;
  std::string out, what = "features", split = "all";
  bool csv = false;
};

void run_embed(EmbedArgs& a) {
  auto& source = a.encoder;
  eval::check_export_name(a.out);  // before anything takes time
  const auto run = source.open();
  const auto model = source.load(run);
  const auto where = source.source(run);
  const auto adapted = load_split(source, where, model, a.split, 0, 0);
  ProgressLine line(source.json);
  const auto result = eval::export_features(
      model, adapted.set,
      {.out = a.out, .projection = a.what == "projection", .csv = a.csv, .progress = [&](double share) {
         line.show("features", share);
       }});
  line.clear();
  std::vector<std::string> files;
  for (const auto& f : result.files) files.push_back(f.string());
  if (source.json) {
    fmt::print("{}\n", nlohmann::json{{"run", source.run},
                                      {"data", where.source},
                                      {"split", adapted.set.split},
                                      {"what", a.what},
                                      {"images", result.images},
                                      {"dimensions", result.dimensions},
                                      {"epoch", model.position.epoch},
                                      {"files", files},
                                      {"notes", adapted.notes}}
                           .dump(2));
    return;
  }
  for (const auto& n : adapted.notes) fmt::print("note: {}\n", n);
  fmt::print("{} of {} {} images, {} dimensions: {}\n", a.what, result.images, where.source,
             result.dimensions, core::join(files, ", "));
}

struct MapArgs {
  EncoderOptions encoder;
  std::string out, method = "both", split = "test";
  int64_t points = 2000;
  int iterations = 750;
  double perplexity = 30;
  uint64_t seed = 0;
};

void run_map(MapArgs& a) {
  auto& source = a.encoder;
  const auto run = source.open();
  const auto model = source.load(run);
  const auto where = source.source(run);
  const auto adapted = load_split(source, where, model, a.split, a.points, a.seed);
  ProgressLine line(source.json);
  eval::FeatureOptions f;
  f.progress = [&](double share) { line.show("features", share); };
  const auto features = eval::features(*model.encoder, adapted.set, f);
  if (!features.isfinite().all().item<bool>())
    core::usage_error("eval",
                      "features are NaN or infinite; the encoder has diverged: use an earlier checkpoint");
  std::vector<plot::Image> pictures;
  const auto draw = [&](const torch::Tensor& points, const char* name) {
    pictures.push_back(
        plot::scatter_map(points, adapted.set.labels, adapted.set.class_names,
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
    fmt::print("{}\n", nlohmann::json{{"run", source.run},
                                      {"data", where.source},
                                      {"points", features.size(0)},
                                      {"method", a.method},
                                      {"file", a.out},
                                      {"notes", adapted.notes}}
                           .dump(2));
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
  c->add_option("--out", o->out, "File that ends in .npy")->required();
  c->add_option("--what", o->what, "features (before the head) or projection")
      ->check(CLI::IsMember({"features", "projection"}))
      ->capture_default_str();
  c->add_option("--split", o->split, "train, test or all")
      ->check(CLI::IsMember({"train", "test", "all"}))
      ->capture_default_str();
  c->add_flag("--csv", o->csv, "Also write file, label and features as CSV");
  c->callback([o] { run_embed(*o); });
}

void add_map_command(CLI::App& app) {
  auto o = std::make_shared<MapArgs>();
  auto* c = app.add_subcommand("map", "Picture of the features in two dimensions, coloured by label");
  o->encoder.add(*c);
  c->add_option("--out", o->out, "PNG to write")->required();
  c->add_option("--method", o->method, "pca, tsne or both")
      ->check(CLI::IsMember({"pca", "tsne", "both"}))
      ->capture_default_str();
  c->add_option("--points", o->points, "Images on the map, class-balanced")
      ->check(CLI::Range(4, 5000))
      ->capture_default_str();
  c->add_option("--split", o->split, "train, test or all")
      ->check(CLI::IsMember({"train", "test", "all"}))
      ->capture_default_str();
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
