#pragma once
// Augmented views: random crops, flips, colours, blur and noise, as contrastive learning needs them.

#include <ebclr/api.h>
#include <ebclr/configuration.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

namespace ebclr {

/// Makes views as a configuration's augment.* keys say. A view depends on (seed, epoch, row, view) alone, not
/// on threads or on the rest of the batch. Safe to use from several threads.
class EBCLR_API Views {
 public:
  explicit Views(const Configuration& configuration = {});
  ~Views();
  Views(Views&&) noexcept;
  Views& operator=(Views&&) noexcept;

  /// pixels uint8 [N, C, H, W] -> float [N, C, H, W] in [-1, 1] (augment.noise may step over).
  torch::Tensor make(const torch::Tensor& pixels, uint64_t seed, uint64_t view = 0, uint64_t epoch = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebclr
