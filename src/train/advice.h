#pragma once
// Settings for a folder of images that nobody has written a configuration for: from their number and size,
// the machine's speed, and the time that may be spent.

#include <string>
#include <vector>

#include "engine/engine.h"
#include "run/config.h"

namespace ebclr::train {

/// What is known before anything is decoded.
struct FolderFacts {
  int64_t images = 0;       ///< files
  int64_t median_side = 0;  ///< short side of the pictures, the median of a sample
  int64_t image_size = 0;   ///< asked for; 0: choose
};

struct Advice {
  std::vector<std::pair<std::string, std::string>> values;  ///< keys and what they should be
  std::vector<std::string> reasons;                         ///< a line each: what, and why
};

/// Size, encoder, batch: all that does not depend on speed.
Advice advise(const FolderFacts& facts);

/// Seconds of one training step of this configuration here, measured on noise.
double seconds_per_step(const run::Config& config, const std::vector<int64_t>& image_shape,
                        const engine::Placement& placement);

/// Epochs that fit the budget, replay buffer, logs and checkpoints, for `train_images` and the measured step.
Advice fit_budget(const run::Config& config, int64_t train_images, const std::vector<int64_t>& image_shape,
                  double step_seconds, double budget_seconds);

/// "30m", "2h", "90s", "1h30m" or a number of minutes; throws Error otherwise.
double parse_duration(const std::string& text);

}  // namespace ebclr::train
