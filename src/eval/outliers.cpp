#include "eval/outliers.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "eval/knn.h"

namespace ebclr::eval {

FeatureDistances::FeatureDistances(const torch::Tensor& train, int64_t k) : k_(k) {
  torch::NoGradGuard no_grad;
  if (train.dim() != 2 || train.size(0) < 2)
    core::usage_error("eval.outliers", "distances need the features of at least two training images");
  k_ = std::min(k_, train.size(0) - 1);
  train_ = unit_rows(train.to(torch::kCPU, torch::kFloat32)).contiguous();
  const auto rows = train_.to(torch::kFloat64);
  mean_ = rows.mean(0);
  const auto x = rows - mean_;
  auto covariance = x.t().matmul(x) / static_cast<double>(rows.size(0) - 1);
  // Directions without any scatter (dead features, fewer images than dimensions) would be infinitely far.
  const auto floor = covariance.diagonal().mean() * 1e-4 + 1e-12;
  covariance.diagonal().add_(floor);
  cholesky_ = torch::linalg_cholesky(covariance);
}

torch::Tensor FeatureDistances::neighbour(const torch::Tensor& features, bool known) const {
  KnnOptions options;
  options.k = known ? k_ + 1 : k_;
  const auto queries = unit_rows(features.to(torch::kCPU, torch::kFloat32)).contiguous();
  return nearest_neighbours(train_, queries, options).values.select(1, options.k - 1).contiguous();
}

torch::Tensor FeatureDistances::mahalanobis(const torch::Tensor& features) const {
  torch::NoGradGuard no_grad;
  const auto x = unit_rows(features.to(torch::kCPU, torch::kFloat32)).to(torch::kFloat64) - mean_;
  const auto white = torch::linalg_solve_triangular(cholesky_, x.t(), /*upper=*/false);  // [D, M]
  return white.square().sum(0).sqrt();
}

torch::Tensor standard_scores(const torch::Tensor& scores, const torch::Tensor& of_training) {
  const auto known = of_training.to(torch::kFloat64);
  const auto middle = known.median();
  const auto scatter = (known - middle).abs().median() * 1.4826;
  return (scores.to(torch::kFloat64) - middle) / scatter.clamp_min(1e-12);
}

torch::Tensor unusualness(const std::vector<ScorePair>& pairs) {
  torch::Tensor sum;
  for (const auto& p : pairs) {
    const auto squares = standard_scores(p.scores, p.of_training).square();
    sum = sum.defined() ? sum + squares : squares;
  }
  return sum.sqrt();
}

}  // namespace ebclr::eval
