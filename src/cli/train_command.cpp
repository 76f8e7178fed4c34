#include "cli/train_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/config_options.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "cli/watch_command.h"
#include "core/error.h"
#include "core/text.h"
#include "data/catalog.h"
#include "eval/features.h"
#include "train/trainer.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

struct TrainArgs {
  ConfigOptions config;
  RuntimeOptions runtime;
  WatchOptions watch;
  std::string out, resume;
  bool quiet = false, json = false;
};

// runs/ebclr-cifar10, or with a number behind it when that is taken.
fs::path default_folder(const run::Config& c) {
  const std::string source = fs::path(c.data.source).filename().string();
  const fs::path base =
      fs::path("runs") / fmt::format("{}-{}", c.method.name, source.empty() ? "images" : source);
  for (int i = 1;; ++i) {
    fs::path candidate = i == 1 ? base : fs::path(base.string() + fmt::format("-{}", i));
    if (!fs::exists(candidate)) return candidate;
  }
}

void train(const TrainArgs& a) {
  std::vector<std::string> warnings;
  run::Config config;
  run::RunFolder folder;
  if (!a.resume.empty()) {
    if (!a.config.config.empty() || !a.config.data.empty() || !a.out.empty())
      core::usage_error(
          "train",
          "--resume takes everything from the run folder; --config, --data and --out do not go with it");
    folder.root = a.resume;
    // Only the length of a run may be changed on the way; anything else would not be the same run.
    std::vector<run::Layer> layers = {
        run::read_layer(run::Run::open(a.resume).folder().config().string(), warnings)};
    for (auto& layer : layers_of(a.config, warnings)) {
      if (layer.values[0].first != "train.epochs" && layer.values[0].first != "data.root")
        core::usage_error("train", fmt::format("{} cannot change {} of a run that has begun", layer.origin,
                                               layer.values[0].first));
      layers.push_back(layer);
    }
    config = run::resolve(layers);
  } else {
    config = run::resolve(layers_of(a.config, warnings));
    if (config.data.source.empty())
      core::usage_error("train",
                        "no images: give --data NAME|DIR or a configuration with data.source (try --config "
                        "quick/ebclr_fmnist)");
    folder.root = a.out.empty() ? default_folder(config) : fs::path(a.out);
  }
  const auto runtime = apply(a.runtime);
  TrainProgress progress(a.quiet);
  for (const auto& w : warnings) progress.on_warning(w);

  auto sets = data::load(config.data);
  for (const auto& n : sets.train.notes) progress.on_warning(n);
  auto images = std::make_shared<data::ImageSet>(std::move(sets.train));
  LivePage page(a.watch, {folder.root}, folder.root.string());
  train::Trainer trainer({.folder = folder,
                          .config = config,
                          .resume = !a.resume.empty(),
                          .device = runtime.device,
                          .engine = runtime.engine},
                         images, progress);
  if (config.monitor.knn_every > 0) {
    if (!images->labelled())
      core::usage_error("train",
                        fmt::format("monitor.knn_every needs labels, and {} has images without; set it to 0",
                                    images->name));
    trainer.set_monitor(eval::make_knn_monitor(
        trainer.method().encoder(), *images, sets.test,
        {.train = config.monitor.train, .test = config.monitor.test, .seed = config.train.seed}));
  }
  catch_interrupts();
  const auto outcome = trainer.run(interrupted());
  if (a.json) {
    nlohmann::ordered_json j = {{"run", folder.root.string()},
                                {"finished", outcome.finished},
                                {"step", outcome.position.step},
                                {"epoch", outcome.position.epoch},
                                {"seconds", outcome.position.seconds},
                                {"forward_units", outcome.position.forward_units},
                                {"loss", outcome.loss}};
    fmt::print("{}\n", j.dump(2));
  }
  if (!outcome.finished) {
    fmt::print(stderr,
               "\ninterrupted at step {}; everything is saved. Continue with:\n  ebclr train --resume {}\n",
               outcome.position.step, folder.root.string());
    throw core::Error(core::ExitCode::kInterrupted, "", "");
  }
  if (!a.quiet && !a.json)
    fmt::print("run folder: {}\nnext: ebclr eval knn {}\n", folder.root.string(), folder.root.string());
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto a = std::make_shared<TrainArgs>();
  auto* command = app.add_subcommand("train", "Learn a representation");
  add_config_options(*command, a->config);
  command->add_option("--out", a->out, "Run folder (default: runs/<method>-<data>)");
  command->add_option("--resume", a->resume, "Continue the run in this folder");
  command->add_flag("--quiet", a->quiet, "Warnings and errors only");
  command->add_flag("--json", a->json, "Print the outcome as JSON");
  add_watch_options(*command, a->watch);
  add_runtime_options(*command, a->runtime);
  command->callback([a] { train(*a); });
}

}  // namespace ebclr::cli
