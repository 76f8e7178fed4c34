#pragma once
// The guard of a training: what counts as a fault, which checkpoint is good enough to go back to, how often
// that may be tried, and what to warn of. It looks at numbers and keeps a small state that goes into
// checkpoints; the trainer does what it says.

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "methods/method.h"
#include "run/checkpoint.h"
#include "run/config.h"

namespace ebclr::train {

/// What is known of a step when the guard looks at it; what is not known yet stays nullopt.
struct Signs {
  run::Position position = {};  ///< before the step
  double loss = 0;
  std::vector<std::pair<std::string, double>> metrics = {};
  std::optional<double> grad_norm = {};
  std::optional<double> spread = {};  ///< of the projections, as of the last logged step
  int64_t projection_dim = 0;
};

/// What is not finite in a state that is about to be saved; nullopt when all of it is sound.
std::optional<std::string> unsound(const run::Snapshot& snapshot);

class Guard {
 public:
  /// `limits` are those of the method: metrics that must not run away.
  Guard(const run::Config& config, std::vector<methods::MetricLimit> limits, int64_t steps_per_epoch);

  /// Why this step must not be kept; nullopt when all is well. Asked after the forward pass and again with
  /// the gradient.
  std::optional<std::string> fault(const Signs& signs) const;
  /// A warning about a step that is kept; nullopt mostly.
  std::optional<std::string> warning(const Signs& signs);

  /// A step was kept, and this is the position after it: checkpoints far enough behind it become good, and
  /// after a long healthy stretch the tries are counted anew.
  void kept(const run::Position& after);

  /// A checkpoint is about to be written.
  void saved(const run::CheckpointId& id);
  /// A resumed run stands at `id`, and these earlier checkpoints of it are whole on disk, oldest first.
  void resumed(const run::CheckpointId& id, const std::vector<run::CheckpointId>& earlier);
  /// The newest checkpoint with enough healthy steps beyond it: where a roll-back goes.
  const std::optional<run::CheckpointId>& good() const { return good_; }
  /// Checkpoints that must not be pruned: the good one, and the next that may become it.
  std::vector<run::CheckpointId> protect() const;

  /// May another roll-back be tried?
  bool may_roll_back() const { return tries_ < options_.tries; }
  /// A step from `failed` was refused and the run went back; its state is now saved as `id`.
  void rolled_back(const run::Position& failed, const run::CheckpointId& id);
  /// Roll-backs tried so far.
  int64_t tries() const { return tries_; }
  /// Factor of the learning rate after the roll-backs so far.
  double lr_scale() const { return lr_scale_; }

  /// Everything that a resumed run must know.
  nlohmann::json state() const;
  /// Restores it from a checkpoint's small state; throws nlohmann's exception when it does not fit.
  void load_state(const nlohmann::json& small, const run::Position& position);

 private:
  void trim();
  /// Have the projections fallen into one point?
  bool collapsed(const Signs& signs) const;
  /// Is that more than a passing dip?
  bool is_lasting(const Signs& signs) const;

  run::GuardOptions options_;
  std::vector<methods::MetricLimit> limits_;
  int64_t healthy_;    // steps beyond a checkpoint until it is good
  int64_t keep_last_;  // what the writer keeps besides the protected ones
  std::optional<run::CheckpointId> good_;
  std::deque<run::CheckpointId> candidates_;  // newer than the good one and still on disk, oldest first
  int64_t tries_ = 0;
  int64_t failed_step_ = 0;  // the furthest step that was refused
  double lr_scale_ = 1;
  double widest_spread_ = 0;
  bool collapse_warned_ = false;
  int64_t collapsed_since_ = -1;  // step; -1: they have not
};

}  // namespace ebclr::train
