#include "eval/tsne.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/clones.h"
#include "core/error.h"

namespace ebclr::eval {
namespace {

torch::Tensor squared_distances(const torch::Tensor& x) {
  const auto norms = x.square().sum(1);
  auto d = norms.unsqueeze(1) + norms.unsqueeze(0) - 2 * torch::mm(x, x.t());
  d.clamp_min_(0).fill_diagonal_(0);
  return d;
}

/// What pulls and pushes one point: sums over all others. Widest vectors that the machine has (half the time
/// of the base instruction set); sums may differ in the last digit from machine to machine.
struct Force {
  float pull_x = 0, pull_y = 0, push_x = 0, push_y = 0, weight = 0;
};

EBCLR_CLONES Force force_on(int64_t i, const float* p, const float* x, const float* y, int64_t n) {
  const float xi = x[i], yi = y[i];
  float ax = 0, ay = 0, rx = 0, ry = 0, z = 0;
#pragma omp simd reduction(+ : ax, ay, rx, ry, z)
  for (int64_t j = 0; j < n; ++j) {
    const float dx = xi - x[j], dy = yi - y[j];
    const float w = 1.0f / (1.0f + dx * dx + dy * dy);
    const float a = p[j] * w, r = w * w;
    ax += a * dx, ay += a * dy, rx += r * dx, ry += r * dy, z += w;
  }
  return {ax, ay, rx, ry, z};
}

/// Forces on every point at once; returns the normaliser Z. Row sums only, so threads cannot change them.
/// attraction_i = sum_j p_ij w_ij (y_i - y_j), repulsion_i = sum_j w_ij^2 (y_i - y_j), w = 1 / (1 + |y_i -
/// y_j|^2).
double forces(const float* p, const std::vector<float>& x, const std::vector<float>& y,
              std::vector<float>& attraction, std::vector<float>& repulsion) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<double> sums(n);
  at::parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Force f = force_on(i, p + i * n, x.data(), y.data(), n);
      attraction[2 * i] = f.pull_x, attraction[2 * i + 1] = f.pull_y;
      repulsion[2 * i] = f.push_x, repulsion[2 * i + 1] = f.push_y;
      sums[i] = static_cast<double>(f.weight) - 1;  // a point is not its own neighbour
    }
  });
  double z = 0;
  for (double s : sums) z += s;
  return z;
}

}  // namespace

torch::Tensor pca(const torch::Tensor& x, int64_t components) {
  torch::NoGradGuard no_grad;
  const auto centred = x.to(torch::kCPU, torch::kFloat64) - x.to(torch::kCPU, torch::kFloat64).mean(0);
  const int64_t n = centred.size(0), width = centred.size(1);
  const int64_t kept = std::min({components, n, width});
  // The smaller of covariance [D, D] and Gram matrix [N, N] has all that is needed.
  torch::Tensor projected, axes;
  if (width <= n) {
    axes = std::get<1>(torch::linalg_eigh(torch::mm(centred.t(), centred)))
               .flip(1)
               .narrow(1, 0, kept);  // [D, kept]
    projected = torch::mm(centred, axes);
  } else {
    auto [values, vectors] = torch::linalg_eigh(torch::mm(centred, centred.t()));
    const auto top = vectors.flip(1).narrow(1, 0, kept);  // [N, kept]
    projected = top * values.flip(0).narrow(0, 0, kept).clamp_min(0).sqrt();
    axes = torch::mm(centred.t(), top);
  }
  const auto largest = axes.abs().argmax(0, true);
  const auto sign = axes.gather(0, largest).sign();
  projected = projected * torch::where(sign == 0, torch::ones_like(sign), sign);
  if (kept < components)
    projected = torch::cat({projected, torch::zeros({n, components - kept}, torch::kFloat64)}, 1);
  return projected.contiguous();
}

torch::Tensor tsne_affinities(const torch::Tensor& distances, double perplexity) {
  const int64_t n = distances.size(0);
  const auto d = distances.to(torch::kFloat64).contiguous();
  const double* source = d.data_ptr<double>();
  auto p = torch::empty({n, n});
  auto* target = p.data_ptr<float>();
  const double wanted = std::log(perplexity);
  at::parallel_for(0, n, 16, [&](int64_t begin, int64_t end) {
    std::vector<double> weight(n);
    for (int64_t i = begin; i < end; ++i) {
      const double* row = source + i * n;
      double nearest = INFINITY;
      for (int64_t j = 0; j < n; ++j) {
        if (j != i) nearest = std::min(nearest, row[j]);
      }
      // Bisection on the precision: entropy falls as it grows.
      double beta = 1, low = 0, high = INFINITY, sum = 0;
      for (int step = 0; step < 100; ++step) {
        double energy = 0;
        sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          // Relative to the nearest, so that far-off points cannot all underflow.
          weight[j] = j == i ? 0 : std::exp(-beta * (row[j] - nearest));
          sum += weight[j];
          energy += weight[j] * (row[j] - nearest);
        }
        const double entropy = std::log(sum) + beta * energy / sum;
        if (std::abs(entropy - wanted) < 1e-6) break;
        if (entropy > wanted) {
          low = beta;
          beta = std::isinf(high) ? beta * 2 : (beta + high) / 2;
        } else {
          high = beta;
          beta = (beta + low) / 2;
        }
      }
      for (int64_t j = 0; j < n; ++j) target[i * n + j] = static_cast<float>(weight[j] / sum);
    }
  });
  p = (p + p.t()) / (2.0 * static_cast<double>(n));
  return p.contiguous();
}

torch::Tensor tsne(const torch::Tensor& features, const TsneOptions& options) {
  torch::NoGradGuard no_grad;
  const int64_t n = features.size(0);
  if (n < 4) core::usage_error("eval.tsne", fmt::format("a map of {} points; use 4 or more", n));
  if (n > options.max_points) {
    core::usage_error(
        "eval.tsne",
        fmt::format("exact t-SNE of {} points would take too long; use {} or fewer", n, options.max_points));
  }
  if (!features.isfinite().all().item<bool>()) {
    core::usage_error("eval.tsne", "features hold NaN or infinite values; use an earlier checkpoint");
  }
  const auto x = options.pca_dimensions > 0 && features.size(1) > options.pca_dimensions
                     ? pca(features, options.pca_dimensions)
                     : features.to(torch::kCPU, torch::kFloat64);
  // A perplexity near the number of points has no solution.
  const double perplexity = std::min(options.perplexity, static_cast<double>(n - 1) / 3);
  const auto affinities = tsne_affinities(squared_distances(x), std::max(perplexity, 1.0));
  const float* p = affinities.data_ptr<float>();

  auto start = pca(x, 2);
  start = start / start.select(1, 0).std().clamp_min(1e-12) * 1e-4;
  std::vector<float> px(n), py(n), attraction(2 * n), repulsion(2 * n), speed(2 * n, 0.f), gain(2 * n, 1.f);
  start = start.to(torch::kFloat32).contiguous();
  for (int64_t i = 0; i < n; ++i) {
    px[i] = start.data_ptr<float>()[2 * i];
    py[i] = start.data_ptr<float>()[2 * i + 1];
  }
  const double rate = options.learning_rate > 0
                          ? options.learning_rate
                          : std::max(static_cast<double>(n) / options.exaggeration / 4, 50.0);
  for (int it = 0; it < options.iterations; ++it) {
    const bool early = it < options.exaggerated;
    const double z = forces(p, px, py, attraction, repulsion);
    const auto pull = static_cast<float>(early ? options.exaggeration : 1.0),
               push = static_cast<float>(1 / z);
    const float momentum = early ? 0.5f : 0.8f;
    for (int64_t k = 0; k < 2 * n; ++k) {
      const float gradient = 4 * (pull * attraction[k] - push * repulsion[k]);
      gain[k] = std::max(0.01f, (gradient > 0) == (speed[k] > 0) ? gain[k] * 0.8f : gain[k] + 0.2f);
      speed[k] = momentum * speed[k] - static_cast<float>(rate) * gain[k] * gradient;
      (k % 2 ? py : px)[k / 2] += speed[k];
    }
    if (options.progress) options.progress(it + 1);
  }
  auto map = torch::empty({n, 2});
  auto* out = map.data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) out[2 * i] = px[i], out[2 * i + 1] = py[i];
  return map - map.mean(0);
}

}  // namespace ebclr::eval
