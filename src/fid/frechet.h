#pragma once
// The Frechet distance between two sets of features, each taken as a Gaussian. All in double precision.

#include <torch/types.h>

#include <vector>

namespace ebclr::fid {

/// Mean and unbiased covariance of a set of features.
struct Gaussian {
  torch::Tensor mean;        ///< double [D]
  torch::Tensor covariance;  ///< double [D, D]
  int64_t count = 0;         ///< features it was made of

  int64_t dimensions() const { return mean.size(0); }
};

/// Collects a Gaussian from batches; its memory does not grow with their number.
class Moments {
 public:
  /// Takes features [N, D] of any floating type and device; throws Error on values that are not finite.
  void add(const torch::Tensor& features);
  /// Takes all that another has collected.
  void add(const Moments& other);
  /// The Gaussian of all that was added; throws Error below two features.
  Gaussian gaussian() const;
  int64_t count() const { return count_; }

 private:
  void merge(int64_t n, const torch::Tensor& mean, const torch::Tensor& scatter);

  int64_t count_ = 0;
  torch::Tensor mean_;     // double [D]
  torch::Tensor scatter_;  // double [D, D]: sum of outer products around mean_
};

/// One side of many comparisons: its covariance is decomposed once.
class FrechetReference {
 public:
  explicit FrechetReference(Gaussian gaussian);

  /// |m1 - m2|^2 + tr(S1 + S2 - 2 (S1^1/2 S2 S1^1/2)^1/2), never negative; covariances may be singular.
  double distance(const Gaussian& other) const;
  const Gaussian& gaussian() const { return gaussian_; }
  /// Directions in which the covariance is more than rounding.
  int64_t rank() const { return factor_.size(1); }

 private:
  Gaussian gaussian_;
  torch::Tensor factor_;  // L [D, rank], L L^T = covariance
};

/// Standard deviation of a distance by the choice of the features: each of the parts is left out once
/// (delete-a-group jackknife). NaN below two parts.
double distance_deviation(const FrechetReference& reference, const std::vector<Moments>& parts);

}  // namespace ebclr::fid
