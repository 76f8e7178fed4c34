#pragma once
// BatchNorm in training as the network uses it: the kernels' passes and the arithmetic per channel between
// them.

#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels.h"
#include "cpu/network.h"

namespace ebclr::cpu {

/// Scale and shift of one BatchNorm, from the batch's statistics. Shared by a team.
class NormScale {
 public:
  explicit NormScale(int channels) : scale_(channels), shift_(channels) {}

  /// Statistics of z into mean and var ([layer.out], padded), and from them scale and shift. Ends with a
  /// sync.
  void measure(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters,
               float epsilon, const float* z, int images, int pixels, float* mean, float* var,
               const Team& team);

  const float* scale() const { return scale_.data(); }
  const float* shift() const { return shift_.data(); }

 private:
  Buffer scale_, shift_;
};

/// The way back through one BatchNorm after the other; work space for the widest. Shared by a team.
class NormGradient {
 public:
  explicit NormGradient(int channels)
      : sum_g_(channels), sum_gz_(channels), a_(channels), b_(channels), c_(channels) {}

  /// From the gradient g of the result to that of z, in dz (which may be g), and to gamma and beta where
  /// `into` names them. Ends with a sync.
  void run(const Kernels& kernels, const ConvLayer& layer, const ConvParameters& parameters, float epsilon,
           const float* z, int images, int pixels, const float* mean, const float* var, const float* g,
           const ConvGradients& into, float* dz, const Team& team);

 private:
  Buffer sum_g_, sum_gz_, a_, b_, c_;
};

}  // namespace ebclr::cpu
