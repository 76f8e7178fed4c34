#include "cpu/batch_norm.h"

#include <cmath>

namespace ebclr::cpu {

// Both functions give a thread whole panels of channels, the same in the kernel and in the loop after it, so
// that the loop needs no sync before it.

void NormScale::measure(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters,
                        float epsilon, const float* z, int images, int pixels, float* mean, float* var,
                        const Team& team) {
  kernels.batch_stats(z, images, layer.out, pixels, mean, var, team);
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
                       const float* var, const float* g, const ConvGradients& into, float* dz,
                       const Team& team) {
  kernels.batch_grad_sums(g, z, mean, images, layer.out, pixels, sum_g_.data(), sum_gz_.data(), team);
  const long panels = layer.out / kernels.lanes;
  const double count = static_cast<double>(images) * pixels;
  for (long c = team.begin(panels) * kernels.lanes; c < team.end(panels) * kernels.lanes; ++c) {
    const bool real = c < layer.out_real;
    const double inverse = 1 / std::sqrt(static_cast<double>(var[c]) + epsilon);
    const double a = real ? parameters.gamma[c] * inverse : 0;
    a_.data()[c] = static_cast<float>(a);
    b_.data()[c] = static_cast<float>(-a * inverse * inverse * sum_gz_.data()[c] / count);
    c_.data()[c] = static_cast<float>(-a * sum_g_.data()[c] / count);
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
