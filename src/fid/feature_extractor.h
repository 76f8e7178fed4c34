#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace ebclr::fid {

/// What turns images into the features that a Frechet distance is taken of.
class FeatureExtractor {
 public:
  virtual ~FeatureExtractor() = default;
  /// images float [N, C, H, W] in [-1, 1] -> features [N, dimensions()].
  virtual torch::Tensor features(const torch::Tensor& images) = 0;
  virtual int64_t dimensions() const = 0;
  /// What the distance is called, e.g. "FID (Inception, 2048-d)".
  virtual std::string label() const = 0;
  /// One sentence on what measures.
  virtual std::string description() const = 0;
};

}  // namespace ebclr::fid
