#include "fid/frechet.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace ebclr::fid {
namespace {
constexpr std::string_view kFrechetComponent = "fid";
}

void Moments::add(const torch::Tensor& features) {
  torch::NoGradGuard no_grad;
  if (features.dim() != 2)
    core::usage_error(kFrechetComponent,
                      fmt::format("features with {} dimensions; expected [N, D]", features.dim()));
  const int64_t n = features.size(0);
  if (n == 0) return;
  const auto x = features.detach().to(torch::kCPU, torch::kFloat64);
  if (count_ > 0 && x.size(1) != mean_.size(0))
    core::usage_error(kFrechetComponent,
                      fmt::format("features of size {} after features of size {}", x.size(1), mean_.size(0)));
  if (!torch::isfinite(x).all().item<bool>())
    core::run_error(kFrechetComponent,
                    "features that are not finite; the images or the network have diverged");
  // Sums around each batch's own mean, then merged: no cancellation of large means.
  const auto mean = x.mean(0);
  const auto centred = x - mean;
  merge(n, mean, centred.t().mm(centred));
}

void Moments::add(const Moments& other) {
  if (other.count_ > 0) merge(other.count_, other.mean_, other.scatter_);
}

void Moments::merge(int64_t n, const torch::Tensor& mean, const torch::Tensor& scatter) {
  torch::NoGradGuard no_grad;
  if (count_ == 0) {
    mean_ = mean.clone();
    scatter_ = scatter.clone();
  } else {
    const auto total = static_cast<double>(count_ + n);
    const auto delta = mean - mean_;
    scatter_.add_(scatter).add_(delta.outer(delta),
                                static_cast<double>(count_) * static_cast<double>(n) / total);
    mean_.add_(delta, static_cast<double>(n) / total);
  }
  count_ += n;
}

Gaussian Moments::gaussian() const {
  if (count_ < 2)
    core::usage_error(kFrechetComponent,
                      fmt::format("{} images are too few for a covariance; use 2 or more", count_));
  return {mean_.clone(), scatter_ / static_cast<double>(count_ - 1), count_};
}

FrechetReference::FrechetReference(Gaussian gaussian) : gaussian_(std::move(gaussian)) {
  torch::NoGradGuard no_grad;
  const auto [values, vectors] = torch::linalg_eigh(gaussian_.covariance);
  // With fewer features than dimensions most eigenvalues are rounding, some of it negative: its square root
  // would be 1e8 times larger than itself.
  const double largest = values.abs().max().item<double>();
  const double rounding =
      largest * std::numeric_limits<double>::epsilon() * static_cast<double>(gaussian_.dimensions());
  const auto kept = values.gt(rounding).nonzero().flatten();
  factor_ = vectors.index_select(1, kept) * values.index_select(0, kept).sqrt();
}

double FrechetReference::distance(const Gaussian& other) const {
  torch::NoGradGuard no_grad;
  if (other.dimensions() != gaussian_.dimensions())
    core::usage_error(kFrechetComponent, fmt::format("features of size {} against features of size {}",
                                                     other.dimensions(), gaussian_.dimensions()));
  // With S1 = L L^T the matrix L^T S2 L is symmetric and has the eigenvalues of S1^1/2 S2 S1^1/2 that are not
  // zero, in rank x rank instead of D x D.
  double root = 0;
  if (rank() > 0) {
    const auto inner = factor_.t().mm(other.covariance).mm(factor_);
    root = torch::linalg_eigvalsh((inner + inner.t()) * 0.5).clamp_min(0).sqrt().sum().item<double>();
  }
  const double means = (gaussian_.mean - other.mean).square().sum().item<double>();
  const double traces = (gaussian_.covariance.trace() + other.covariance.trace()).item<double>();
  return std::max(0.0, means + traces - 2 * root);
}

double distance_deviation(const FrechetReference& reference, const std::vector<Moments>& parts) {
  std::vector<double> without;
  for (size_t skip = 0; skip < parts.size(); ++skip) {
    Moments rest;
    for (size_t i = 0; i < parts.size(); ++i)
      if (i != skip) rest.add(parts[i]);
    if (rest.count() < 2 || parts[skip].count() < 1) return std::numeric_limits<double>::quiet_NaN();
    without.push_back(reference.distance(rest.gaussian()));
  }
  if (without.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(without.size());
  double mean = 0, squares = 0;
  for (const double d : without) mean += d / n;
  for (const double d : without) squares += (d - mean) * (d - mean);
  return std::sqrt((n - 1) / n * squares);
}

}  // namespace ebclr::fid
