#pragma once
// Settings for a folder of images that nobody has written a configuration for: from their number and size,
// the machine's speed, and the time that may be spent.

#include <string>
#include <vector>

#include "run/config.h"

namespace ebclr::train {

/// What is known before anything is decoded.
struct FolderFacts {
  int64_t median_side = 0;  ///< short side of the pictures, the median of a sample
  int64_t image_size = 0;   ///< asked for; 0: choose
};

/// A line: what was chosen, and why.
struct Reason {
  std::vector<std::string> keys;  ///< it is not true when one of them is set otherwise
  std::string text;
};

struct Advice {
  std::vector<std::pair<std::string, std::string>> values = {};  ///< keys and what they should be
  std::vector<Reason> reasons = {};
};

/// The reasons that hold when `above`, what the user says, overrides the advice.
std::vector<std::string> reasons_left(const Advice& advice, const std::vector<run::Layer>& above);

/// Size, encoder and, for EBCLR, the recipe `fast`: what is known before anything is decoded. `asked` is what
/// the user's settings come to on their own; rivals keep the learning rate and first weights of their preset.
Advice advise(const FolderFacts& facts, const run::Config& asked = {});

/// The batch for so many images: eight steps an epoch where there are enough, never more than there are.
Advice advise_batch(int64_t train_images);

/// A chain for every rank, where the share of the batch that was chosen has fewer.
Advice advise_ranks(const run::Config& config, int ranks);

/// Epochs that fit the budget unless `config` has been given some, warm-up, replay buffer, logs and
/// checkpoints, for `train_images` and the measured step.
Advice fit_budget(const run::Config& config, int64_t train_images, const std::vector<int64_t>& image_shape,
                  double step_seconds, double budget_seconds);

/// "30m", "2h", "90s", "1h30m" or a number of minutes; throws Error otherwise.
double parse_duration(const std::string& text);

}  // namespace ebclr::train
