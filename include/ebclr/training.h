#pragma once
// Training from a configuration, watched by an observer.

#include <ebclr/api.h>
#include <ebclr/configuration.h>
#include <ebclr/images.h>
#include <ebclr/method.h>
#include <ebclr/model.h>
#include <ebclr/sampling.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ebclr {

/// What one step did.
struct StepReport {
  int64_t step = 0, total_steps = 0;  ///< steps done, of so many
  int64_t epoch = 0;                  ///< epochs done
  double loss = 0, learning_rate = 0, gradient_norm = 0;
  double images_per_second = 0, seconds_left = 0;
  std::vector<std::pair<std::string, double>> metrics;  ///< of the method: energies, gap, ...
};

/// Sees what happens; all calls come from the thread that is in Training's constructor (warnings and notes)
/// or in Training::run. What it throws ends either.
class EBCLR_API Observer {
 public:
  virtual ~Observer();
  virtual void on_step(const StepReport&) {}
  /// An epoch ended; `knn` is the watched accuracy, or NaN without monitor.knn_every.
  virtual void on_epoch(int64_t /*epoch*/, double /*knn*/) {}
  /// Start-up facts, checkpoints.
  virtual void on_note(const std::string&) {}
  /// Roll-backs after divergence, collapse, files that could not be read.
  virtual void on_warning(const std::string&) {}
};

struct TrainingOptions {
  std::filesystem::path folder;  ///< the run folder: a new one, or with `resume` one to continue
  bool resume = false;           ///< take the configuration from the folder and go on where it stopped
  torch::Device device = torch::kCPU;
  Engine engine = Engine::kAuto;
  Images images = {};  ///< train on these; without pixels: on the set of data.source
  std::shared_ptr<Observer> observer = nullptr;  ///< may be left empty
  std::shared_ptr<Method> method = nullptr;      ///< one of your own in place of method.name
  /// One of your own in place of sampler.*; EBCLR only. Such a run is resumed with one, too.
  std::shared_ptr<Sampler> sampler = nullptr;
};

/// How a training ended.
struct Outcome {
  bool finished = false;  ///< false: stopped; the run can be resumed
  int64_t step = 0, epoch = 0;
  double loss = 0;
  bool saved = true;  ///< false: the last state was not finite; the run goes on from the checkpoint before
};

/// One training in one run folder.
class EBCLR_API Training {
 public:
  /// Loads the images and builds everything; throws Error on a configuration, set or folder that cannot be
  /// used. With `resume` only train.epochs of the configuration counts, when it asks for more than the run
  /// has.
  Training(const Configuration& configuration, const TrainingOptions& options);
  ~Training();
  Training(Training&&) noexcept;
  Training& operator=(Training&&) noexcept;

  /// Trains to the end or until stop(); afterwards Model::load reads the folder. Throws Error when the guard
  /// gives up.
  Outcome run();
  /// Saves and ends run() after the step at hand. May be called from an observer, another thread or a signal
  /// handler.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebclr
