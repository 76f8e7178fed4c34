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

/// Moves chains [N, C, H, W] with the run's sampler; as many steps as a visit has in
/// training count as one, so that the noise falls as there.
DrawnSamples draw_samples(const Density& density, torch::Tensor start, const SampleOptions& options);

}  // namespace ebclr::density
