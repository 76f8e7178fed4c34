#pragma once
// The training loop of every method. It owns the optimizer, the clock and the run folder; what it does is
// told to an observer, so that the library never prints.

#include <torch/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/image_list.h"
#include "data/image_set.h"
#include "dist/group.h"
#include "engine/engine.h"
#include "methods/method.h"
#include "run/run.h"

namespace ebclr::train {

struct TrainerOptions {
  run::RunFolder folder;
  run::Config config;
  data::ImageList list = {};  ///< of images from a folder, kept in the run (images.csv); empty for named sets
  bool resume = false;
  torch::Device device = torch::kCPU;
  engine::EngineOptions engine = {};
  /// Processes that train together, each with the same options and images. Rank 0 alone tells its observer
  /// and writes logs; the folder must lie on a disk that all of them share.
  std::shared_ptr<dist::Group> ranks = dist::solo();
  int loader_threads = 1;  ///< that make views ahead; the views do not depend on it
  /// A method from outside instead of the configuration's.
  std::function<std::unique_ptr<methods::Method>(const methods::MethodOptions&,
                                                 const methods::MethodContext&)>
      make_method = methods::make_method;
  methods::SamplerMaker make_sampler = ebm::make_sampler;  ///< likewise
  bool own_sampler = false;  ///< make_sampler is from outside: a run that has begun with it goes on with one
};

/// What one step did.
struct StepReport {
  run::Position position = {};  ///< after the step
  int64_t total_steps = 0, steps_per_epoch = 0;
  double loss = 0, lr = 0, grad_norm = 0, images_per_second = 0;
  double seconds_left = 0;
  std::vector<std::pair<std::string, double>> metrics = {};
};

/// Sees everything that happens; all calls come from the training thread.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_step(const StepReport&) {}
  /// One line for the log: start-up facts, checkpoints, roll-backs, warnings.
  virtual void on_note(const std::string&) {}
  virtual void on_warning(const std::string&) {}
  /// An epoch ended; knn is NaN without a monitor.
  virtual void on_epoch(int64_t epoch, double knn) {}
};

/// How a run ended.
struct Outcome {
  bool finished = false;  ///< false: interrupted, resumable
  bool saved = true;      ///< false: the last state was not sound; it goes on from the checkpoint before
  run::Position position;
  double loss = 0;
};

class Trainer {
 public:
  /// Builds or restores everything; throws Error on a folder that cannot be used.
  Trainer(TrainerOptions options, std::shared_ptr<const data::ImageSet> images, Observer& observer);
  ~Trainer();

  /// Trains to the end, or until `stop` is set (then it checkpoints and returns).
  Outcome run(const std::atomic<bool>& stop);

  methods::Method& method();
  /// A line for train.log alone.
  void log(const std::string& text);
  /// Accuracy of the encoder as it is, asked every monitor.knn_every epochs; must not change it.
  void set_monitor(std::function<double()> monitor);
  /// Called before each step with the number of steps done (fault injection in tests).
  void set_before_step(std::function<void(int64_t)> hook);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws Error when a run cannot begin in this folder, or cannot be resumed there; looks at names alone, so
/// that it can be asked before any image is read.
void check_run_folder(const run::RunFolder& folder, bool resume);

}  // namespace ebclr::train
