#pragma once

#include <functional>

#include "density/density.h"

namespace ebclr::density {

struct DrawnSamples {
  torch::Tensor samples;                   ///< like start
  torch::Tensor energy_start, energy_end;  ///< [N]
  double out_of_range = 0;                 ///< part of pixels outside [-1, 1]
};

struct SampleOptions {
  int64_t steps = 100;  ///< Langevin steps
  int64_t age = 0;      ///< visits that the chains have behind them, see ChainStarts::age
  uint64_t seed = 0;    ///< of the noise
  std::function<void(double)> progress = {};  ///< hears the share that is done before each step; may throw
};

/// Moves chains [N, C, H, W] with the run's sampler; every sampler.steps steps count as a visit, so that the
/// noise falls as in training.
DrawnSamples draw_samples(const Density& density, torch::Tensor start, const SampleOptions& options);

}  // namespace ebclr::density
