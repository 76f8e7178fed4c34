#pragma once
// Synthetic features and small conveniences of the evaluation's tests.

#include <torch/torch.h>

#include <functional>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "eval/metrics.h"

namespace ebclr::eval {

/// The message of the error that `act` throws, "" when it throws none.
inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const core::Error& e) {
    return e.what();
  }
  return "";
}

/// Standard normal numbers of a seed.
inline torch::Tensor normal(std::vector<int64_t> shape, uint64_t seed) {
  auto out = torch::empty(shape);
  core::fill_normal(seed, 0, {out.data_ptr<float>(), static_cast<size_t>(out.numel())});
  return out;
}

/// `per_class` points around each of `classes` centres, `distance` times as far apart as they are wide.
/// Points of one seed share the centres of `centre_seed`.
inline Labelled blobs(int64_t classes, int64_t per_class, int64_t width, double distance, uint64_t seed,
                      uint64_t centre_seed = 99) {
  const auto centres = normal({classes, width}, centre_seed) * distance;
  const auto labels = torch::arange(classes, torch::kInt64).repeat({per_class});
  return {centres.index_select(0, labels) + normal({classes * per_class, width}, seed), labels};
}

}  // namespace ebclr::eval
