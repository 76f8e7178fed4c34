#pragma once
// What features say without labels: groups of images, and the nearest of an image.

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace ebclr::eval {

/// Groups of rows by direction (spherical k-means with seeded, spread-out starts).
struct Clusters {
  torch::Tensor centres;  ///< unit rows [K, D]
  torch::Tensor of;       ///< int64 [N]: the group of each row
  std::vector<std::vector<int64_t>>
      members;  ///< of each group, the nearest to its centre first; largest group first
};

/// Features float [N, D] into at most `k` groups.
Clusters cluster(const torch::Tensor& features, int64_t k, uint64_t seed, int iterations = 25);

/// The `k` rows most like each of `rows` by cosine, itself left out: int64 [rows, k].
torch::Tensor nearest_rows(const torch::Tensor& features, const torch::Tensor& rows, int64_t k);

}  // namespace ebclr::eval
