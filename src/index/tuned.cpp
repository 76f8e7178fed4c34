#include "index/tuned.h"

#include <torch/torch.h>

#include "eval/features.h"
#include "index/classify.h"

namespace ebclr::index {
namespace {

/// The images of a set that have a label.
data::ImageSet with_labels(const data::ImageSet& set) {
  if (set.size() == 0 || set.labelled()) return set;
  return data::select(set, set.labels.ge(0).nonzero().flatten());
}

}  // namespace

torch::Tensor class_logits(nn::Encoder& encoder, nn::Head& head, const data::ImageSet& set) {
  return eval::features(encoder, set, {.head = &head}).to(torch::kCPU);
}

Tuned judge_tuned(nn::Encoder& encoder, nn::Head& head, nn::Encoder* before, const data::ImageSet& train,
                  const data::ImageSet& test, uint64_t seed) {
  Tuned out{.classes = train.class_names, .labels = train.size()};
  const auto asked = with_labels(test);
  if (asked.size() == 0) return out;
  const auto logits = class_logits(encoder, head, asked);
  out.held_out = eval::score(asked.labels, logits.argmax(1), train.classes());
  out.temperature = fit_temperature(logits, asked.labels);
  if (before == nullptr) return out;
  const eval::Labelled known{eval::features(*before, train), train.labels};
  const auto frozen = classify_split(known, eval::features(*before, asked), train.classes(), seed);
  out.frozen = eval::score(asked.labels, frozen.argmax(1), train.classes());
  return out;
}

}  // namespace ebclr::index
