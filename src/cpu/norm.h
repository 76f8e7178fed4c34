#pragma once
// BatchNorm in training: statistics of the batch, their use, and the way back.

#include "cpu/epilogue.h"
#include "cpu/kernels.h"

namespace ebclr::cpu {
namespace {

/// Sums over the pixels of one panel of one image; short enough for single precision.
template <class V, class Term>
[[gnu::always_inline]] inline typename V::Reg sum_pixels(int pixels, const Term& term) {
  auto a = V::zero(), b = V::zero();
  int i = 0;
  for (; i + 1 < pixels; i += 2) {
    a = V::add(a, term(i));
    b = V::add(b, term(i + 1));
  }
  if (i < pixels) a = V::add(a, term(i));
  return V::add(a, b);
}

/// Mean and biased variance per channel over all images and pixels. A thread owns whole panels, so the result
/// does not depend on the number of threads. Per image in two passes (the panel is in cache for the second),
/// merged in double: no cancellation when the mean is far from zero.
template <class V>
void batch_stats(const float* z, int images, int channels, int pixels, float* mean, float* var,
                 const Team& team) {
  constexpr int L = V::kLanes;
  const int panels = channels / L;
  const auto inverse = V::set1(1.f / static_cast<float>(pixels));
  alignas(64) float mean_of[L], m2_of[L];
  for (long p = team.begin(panels); p < team.end(panels); ++p) {
    double total_mean[L] = {}, total_m2[L] = {};
    for (int n = 0; n < images; ++n) {
      const float* from = z + (long{n} * panels + p) * pixels * L;
      const auto m =
          V::mul(inverse, sum_pixels<V>(pixels, [&](int i) { return V::load(from + long{i} * L); }));
      const auto m2 = sum_pixels<V>(pixels, [&](int i) {
        const auto d = V::sub(V::load(from + long{i} * L), m);
        return V::mul(d, d);
      });
      V::store(mean_of, m);
      V::store(m2_of, m2);
      const double share = 1.0 / (n + 1);
      for (int l = 0; l < L; ++l) {
        const double delta = mean_of[l] - total_mean[l];
        total_mean[l] += delta * share;
        total_m2[l] += m2_of[l] + delta * delta * pixels * n * share;
      }
    }
    for (int l = 0; l < L; ++l) {
      mean[p * L + l] = static_cast<float>(total_mean[l]);
      var[p * L + l] = static_cast<float>(total_m2[l] / (static_cast<double>(images) * pixels));
    }
  }
}

/// y = activation(z * scale + shift + residual), the residual with a scale and shift of its own if given.
template <class V>
void batch_apply(const NormJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int panels = job.channels / L;
  const auto slope = V::set1(job.slope);
  auto* signs = static_cast<typename V::Bits*>(job.signs_out);
  const long items = long{job.images} * panels;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const long c = item % panels * L, at = item * job.pixels;
    const auto scale = V::load(job.scale + c);
    auto shift = V::load(job.shift + c);
    auto residual_scale = V::set1(1);
    if (job.residual_scale != nullptr) {
      residual_scale = V::load(job.residual_scale + c);
      shift = V::add(shift, V::load(job.residual_shift + c));
    }
    for (long i = at; i < at + job.pixels; ++i) {
      auto y = V::fma(V::load(job.z + i * L), scale, shift);
      if (job.residual != nullptr) y = V::fma(V::load(job.residual + i * L), residual_scale, y);
      if (signs != nullptr) signs[i] = V::positive(y);
      V::store(job.y + i * L, V::max(V::mul(y, slope), y));
    }
  }
}

/// Per channel the sums of g and of g * (z - mean): the gradients of shift and, up to 1/std, of scale.
template <class V>
void batch_grad_sums(const float* g, const float* z, const float* mean, int images, int channels, int pixels,
                     float* sum_g, float* sum_gz, const Team& team) {
  constexpr int L = V::kLanes;
  const int panels = channels / L;
  alignas(64) float g_of[L], gz_of[L];
  for (long p = team.begin(panels); p < team.end(panels); ++p) {
    const auto m = V::load(mean + p * L);
    double total_g[L] = {}, total_gz[L] = {};
    for (int n = 0; n < images; ++n) {
      const long at = (long{n} * panels + p) * pixels;
      auto gz = V::zero(), sum = V::zero();
      for (long i = at; i < at + pixels; ++i) {
        const auto value = V::load(g + i * L);
        sum = V::add(sum, value);
        gz = V::fma(value, V::sub(V::load(z + i * L), m), gz);
      }
      V::store(g_of, sum);
      V::store(gz_of, gz);
      for (int l = 0; l < L; ++l) {
        total_g[l] += g_of[l];
        total_gz[l] += gz_of[l];
      }
    }
    for (int l = 0; l < L; ++l) {
      sum_g[p * L + l] = static_cast<float>(total_g[l]);
      sum_gz[p * L + l] = static_cast<float>(total_gz[l]);
    }
  }
}

/// dz = a * g + b * (z - mean) + c per channel; dz may be g.
template <class V>
void batch_grad_apply(const NormGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int panels = job.channels / L;
  const long items = long{job.images} * panels;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const long channel = item % panels * L, at = item * job.pixels;
    const auto a = V::load(job.a + channel), b = V::load(job.b + channel);
    const auto c = V::fnma(b, V::load(job.mean + channel), V::load(job.c + channel));
    for (long i = at; i < at + job.pixels; ++i) {
      V::store(job.dz + i * L, V::fma(a, V::load(job.g + i * L), V::fma(b, V::load(job.z + i * L), c)));
    }
  }
}

}  // namespace
}  // namespace ebclr::cpu
