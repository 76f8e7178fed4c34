#pragma once
// The classifier inside a run that was trained with labels (method.name supervised): what it is worth, and
// what its outputs are called. Kept in the run folder as classes.json.

#include <optional>
#include <string>
#include <vector>

#include "data/image_set.h"
#include "eval/metrics.h"
#include "run/run.h"

namespace ebclr::index {

struct Tuned {
  std::vector<std::string> classes = {};  ///< by output of the head
  int64_t labels = 0;                     ///< that it was trained on
  double temperature = 1;                 ///< logits are divided by it; fitted on held-out labels
  /// On labels that neither had seen, where there are some. Nothing was chosen by them.
  std::optional<eval::Score> held_out = {};
  std::optional<eval::Score> frozen = {};  ///< a linear classifier on the encoder that training started from
};

/// Judges encoder and head on the labelled test images. `before` (may be null) is the encoder that training
/// started from; a linear classifier on its features learns from the same train labels.
Tuned judge_tuned(nn::Encoder& encoder, nn::Head& head, nn::Encoder* before, const data::ImageSet& train,
                  const data::ImageSet& test, uint64_t seed);

/// Logits [N, C] of a set, in inference mode.
torch::Tensor class_logits(nn::Encoder& encoder, nn::Head& head, const data::ImageSet& set);

void write_tuned(const run::RunFolder& folder, const Tuned& tuned);
/// Throws Error when the run has no classes, or not yet. Scores hold counts, accuracy and interval.
Tuned read_tuned(const run::Run& run);

}  // namespace ebclr::index
