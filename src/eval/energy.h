#pragma once
// The model as a density: energies of images and Langevin samples, from a frozen network.

#include <functional>

#include "data/image_set.h"
#include "methods/method.h"
#include "nn/encoder.h"

namespace ebclr::eval {

/// Network outputs f(v) of images float [N, C, H, W], in batches -> [N, D] on the device.
torch::Tensor outputs(nn::Encoder& encoder, nn::Head& head, const torch::Tensor& images, int64_t batch,
                      torch::Device device);

/// E(v) of every image of a set (already fit for the encoder, see adapt) against reference outputs, [N] on
/// the CPU.
torch::Tensor energies(nn::Encoder& encoder, nn::Head& head, const torch::Tensor& references, double tau,
                       const data::ImageSet& set);

struct DrawnSamples {
  torch::Tensor samples;                   ///< like start
  torch::Tensor energy_start, energy_end;  ///< [N]
  double out_of_range = 0;                 ///< part of pixels outside [-1, 1]
};

/// Moves chains for `steps` Langevin steps with the run's sampler; every sampler.steps of them count as a
/// visit, so that the noise falls as in training. `age`: visits before the first. `progress` hears the share
/// that is done before each step; what it throws ends the sampling.
DrawnSamples draw_samples(nn::Encoder& encoder, nn::Head& head, const torch::Tensor& references,
                          const methods::EbclrOptions& options, torch::Tensor start, int64_t steps,
                          int64_t age, uint64_t seed, const std::function<void(double)>& progress = {});

}  // namespace ebclr::eval
