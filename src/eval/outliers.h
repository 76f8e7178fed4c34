#pragma once
// How far images lie from training images in feature space: what an energy must beat to be worth having.

#include <torch/types.h>

#include <vector>

namespace ebclr::eval {

/// Distances of features from those of training images. Features are scaled to unit length first.
class FeatureDistances {
 public:
  /// train float [N, D]; k: which neighbour counts.
  explicit FeatureDistances(const torch::Tensor& train, int64_t k = 10);

  /// Euclidean distance to the k-th nearest training image: float [M, D] -> double [M]. `known`: the features
  /// are training images themselves, which do not count as their own neighbours.
  torch::Tensor neighbour(const torch::Tensor& features, bool known = false) const;
  /// Mahalanobis distance from the mean of training images (SSD of Sehwag et al. 2021 with one cluster):
  /// float [M, D] -> double [M].
  torch::Tensor mahalanobis(const torch::Tensor& features) const;

 private:
  int64_t k_;
  torch::Tensor train_;     // unit rows, float [N, D]
  torch::Tensor mean_;      // double [D]
  torch::Tensor cholesky_;  // of the covariance, lower, double [D, D]
};

/// Scores [M] in units of how training images (scores [N]) scatter: (score - median) / (1.4826 * MAD).
torch::Tensor standard_scores(const torch::Tensor& scores, const torch::Tensor& of_training);

/// Scores of some images and of the training images, by which to tell how usual the former are.
struct ScorePair {
  torch::Tensor scores, of_training;  ///< [M], [N]
};

/// How far images lie from the middle of training images in several scores at once, on either side of it: the
/// root of the summed squares of their standard scores, double [M]. Both sides count because strangers can
/// look too familiar as well: blurred images have lower energies than sharp ones (docs/fast.md).
torch::Tensor unusualness(const std::vector<ScorePair>& pairs);

}  // namespace ebclr::eval
