#pragma once

#include <string>

#include "cli/config_options.h"
#include "cli/runtime.h"
#include "cli/watch_command.h"
#include "data/catalog.h"
#include "dist/group.h"
#include "run/run.h"
#include "train/trainer.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `train`.
void add_train_command(CLI::App& app);

/// How a training runs and what it shows, whatever it learns.
struct TrainingOptions {
  RuntimeOptions runtime;
  WatchOptions watch;
  bool quiet = false, json = false;
  bool silent() const { return quiet || json; }
};
void add_training_options(CLI::App& command, TrainingOptions& options);

/// A run that is about to begin or to go on, with its images.
struct Training {
  run::Config config = {};
  run::RunFolder folder = {};
  bool resume = false;
  data::TrainTest sets = {};
};
/// Trains to the end and prints the outcome; throws an Error of code kInterrupted when it was stopped. A run
/// that learns from labels is judged.
void perform(Training training, const TrainingOptions& options, const Runtime& runtime,
             train::Observer& progress, const std::shared_ptr<dist::Group>& ranks);

/// `train --resume`: `changes` may only be the length of the run and the place of its images.
void continue_run(const std::string& folder, const ConfigOptions& changes, const TrainingOptions& options);

}  // namespace ebclr::cli
