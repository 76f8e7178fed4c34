#include "cli/eval_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "data/other_set.h"
#include "engine/engine.h"
#include "run/images.h"

namespace ebclr::cli {

void EncoderOptions::add(CLI::App& c, bool with_data) {
  c.add_option("RUN", run, "Run folder")->required();
  c.add_option("--checkpoint", checkpoint, "Epoch number or 'last'")->capture_default_str();
  add_data_options(c, *this, with_data);
  add_runtime_options(c, runtime_options);
  c.add_flag("--json", json, "Print JSON instead of a table");
}

data::SourceOptions set_for(const run::Run& run, const std::string& name) {
  if (name.empty() || !run::is_moved(run, name)) return data::other_set(run.config().data, name);
  auto own = run.config().data;
  own.source = name;
  return own;
}

data::SourceOptions EncoderOptions::source(const run::Run& r) const {
  return apply(static_cast<const DataOptions&>(*this), set_for(r, data));
}

std::string EncoderOptions::split_or(const run::Run& r, const std::string& asked,
                                     const std::string& named) const {
  return !asked.empty() ? asked : data::is_folder(source(r).source) ? "all" : named;
}

data::TrainTest EncoderOptions::images(const run::Run& r, bool rest, bool labels) const {
  auto context = load_context(runtime.threads, json);
  auto where = source(r);
  // All images of a folder unless restricted here: what training left out is asked for too.
  context.rest = rest && limit < 0 && limit_test < 0;
  // Another set has a split of its own, and nothing in it is missing or new since training.
  const auto& own = r.config().data.source;
  if (!data.empty() && data != own && run::absolute({.source = data}).source != own &&
      !run::is_moved(r, data))
    return data::load(where, context);
  return labels || !labels_csv.empty() ? run::load_images(r.folder(), where, context)
                                       : run::load_pixels(r.folder(), where, context);
}

run::Run EncoderOptions::open() {
  runtime = apply(runtime_options);
  return run::Run::open(run);
}

run::Model EncoderOptions::load(const run::Run& r) const {
  auto model = r.load(checkpoint);
  engine::place(*model.encoder, model.head.get(), runtime.placement());
  return model;
}

void EncoderOptions::require_same(dist::Group& ranks, const run::Model& model, int64_t images) const {
  if (ranks.alone()) return;
  ranks.require_same("run or set of images", fmt::format("{}, epoch {}, step {}, {} images", run,
                                                         model.position.epoch, model.position.step, images));
}

void JudgingOptions::add_common(CLI::App& c) {
  c.add_option("--plots", plots, "Folder for confusion matrices as PNG");
  c.add_option("--baseline", baselines, "Also judge: random (untrained encoder), pixels")
      ->delimiter(',')
      ->check(CLI::IsMember({"random", "pixels"}));
  c.add_option("--seed", seed, "Seed of splits, batches and first weights")->capture_default_str();
}

void JudgingOptions::add_linear(CLI::App& c, const std::string& protocol_name) {
  c.add_option(protocol_name, linear_protocol,
               "honest: rate chosen on a held-out part of train; paper: best on test")
      ->check(CLI::IsMember({"honest", "paper"}))
      ->capture_default_str();
  c.add_option("--labels-per-class", labels_per_class, "Also probe with so few labels, e.g. 1,10,100")
      ->delimiter(',');
  c.add_option("--draws", draws, "Draws of those labels")->capture_default_str();
  c.add_option("--probe-epochs", epochs, "Epochs of the probe")->capture_default_str();
  c.add_option("--probe-batch", batch, "Batch size of the probe")->capture_default_str();
  c.add_option("--rates", rates, "Learning rates between 1e-4 and 1e-1")->capture_default_str();
  c.add_flag("--standardise", standardise, "Scale features to mean 0, deviation 1");
}

void JudgingOptions::add_knn(CLI::App& c, const std::string& protocol_name) {
  c.add_option(protocol_name, knn_protocols,
               "paper (K 20, 1/L2: the released code), dino (K 20, cosine, T 0.07: the paper's text) or moco "
               "(K 200, cosine, T 0.1); several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"paper", "dino", "moco"}))
      ->capture_default_str();
  add_k(c);
}

void JudgingOptions::add_k(CLI::App& c) {
  c.add_option("--k", k, "Neighbours (default: the protocol's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
}

eval::JudgeOptions JudgingOptions::options(bool linear, bool knn) const {
  eval::JudgeOptions o;
  o.linear = linear;
  o.neighbours.clear();
  if (knn)
    for (const auto& protocol : knn_protocols) {
      o.neighbours.push_back(eval::knn_protocol(protocol));
      if (k > 0) o.neighbours.back().k = k;
    }
  o.probe.protocol = eval::probe_protocol(linear_protocol);
  o.probe.epochs = epochs;
  o.probe.batch_size = batch;
  o.probe.rates = eval::ProbeOptions::log_grid(-4, -1, rates);
  o.probe.standardise = standardise;
  o.probe.seed = seed;
  o.labels_per_class = labels_per_class;
  o.draws = draws;
  return o;
}

}  // namespace ebclr::cli
