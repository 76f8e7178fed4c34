#include "cpu/batch_norm.h"

#include <algorithm>
#include <cmath>

namespace ebclr::cpu {

void TeamSum::ask() noexcept {
  try {
    sum_(numbers_);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

// Both functions give a thread whole panels of channels, the same in the kernel and in the loop after it, so
// that the loop needs no sync before it (a sum over processes in between has its own).

void NormScale::measure(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters,
                        float epsilon, const float* z, int images, int pixels, float* mean, float* var,
                        long& values, TeamSum& sum, const Team& team) {
  kernels.batch_stats(z, images, layer.out, pixels, mean, var, team);
  if (sum.shared()) {
    // Real channels alone: processors may pad differently. In double, so that nothing cancels.
    const int channels = layer.out_real;
    sum.run(
        team, 1 + 2 * static_cast<std::size_t>(channels),
        [&](double* numbers) {
          const auto mine = static_cast<double>(values);
          *numbers++ = mine;
          for (int c = 0; c < channels; ++c) {
            const double m = mean[c];
            numbers[c] = mine * m;
            numbers[channels + c] = mine * (var[c] + m * m);
          }
        },
        [&](const double* numbers) {
          const double all = *numbers++;
          values = std::lround(all);
          for (int c = 0; c < channels; ++c) {
            const double m = numbers[c] / all;
            mean[c] = static_cast<float>(m);
            var[c] = static_cast<float>(std::max(numbers[channels + c] / all - m * m, 0.0));
          }
        });
  }
  const long panels = layer.out / kernels.lanes;
  for (long c = team.begin(panels) * kernels.lanes; c < team.end(panels) * kernels.lanes; ++c) {
    // Padding stays zero.
    const bool real = c < layer.out_real;
    scale_.data()[c] = real ? parameters.gamma[c] / std::sqrt(var[c] + epsilon) : 0.f;
    shift_.data()[c] = real ? parameters.beta[c] - mean[c] * scale_.data()[c] : 0.f;
  }
  team.sync();
}

void NormGradient::run(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters,
                       float epsilon, const float* z, int images, int pixels, const float* mean,
                       const float* var, long values, const float* g, const ConvGradients& into, float* dz,
                       TeamSum& sum, const Team& team) {
  kernels.batch_grad_sums(g, z, mean, images, layer.out, pixels, sum_g_.data(), sum_gz_.data(), team);
  if (sum.shared()) {
    const int channels = layer.out_real;
    sum.run(
        team, 2 * static_cast<std::size_t>(channels),
        [&](double* numbers) {
          std::copy_n(sum_g_.data(), channels, numbers);
          std::copy_n(sum_gz_.data(), channels, numbers + channels);
        },
        [&](const double* numbers) {
          std::copy_n(numbers, channels, total_g_.data());
          std::copy_n(numbers + channels, channels, total_gz_.data());
        });
  }
  const long panels = layer.out / kernels.lanes;
  const auto count = static_cast<double>(values);
  for (long c = team.begin(panels) * kernels.lanes; c < team.end(panels) * kernels.lanes; ++c) {
    const bool real = c < layer.out_real;
    const double inverse = 1 / std::sqrt(static_cast<double>(var[c]) + epsilon);
    const double a = real ? parameters.gamma[c] * inverse : 0;
    const double g_all = sum.shared() ? total_g_[c] : sum_g_.data()[c],
                 gz_all = sum.shared() ? total_gz_[c] : sum_gz_.data()[c];
    a_.data()[c] = static_cast<float>(a);
    b_.data()[c] = static_cast<float>(-a * inverse * inverse * gz_all / count);
    c_.data()[c] = static_cast<float>(-a * g_all / count);
    if (real && into.gamma != nullptr) into.gamma[c] = static_cast<float>(sum_gz_.data()[c] * inverse);
    if (real && into.beta != nullptr) into.beta[c] = sum_g_.data()[c];
  }
  team.sync();
  kernels.batch_grad_apply({.images = images,
                            .channels = layer.out,
                            .pixels = pixels,
                            .g = g,
                            .z = z,
                            .mean = mean,
                            .a = a_.data(),
                            .b = b_.data(),
                            .c = c_.data(),
                            .dz = dz},
                           team);
  team.sync();
}

}  // namespace ebclr::cpu
