#pragma once
// Scaled weight standardisation (Brock et al. 2021): convolutions whose weights have mean 0 and a fixed norm
// per output channel, so that a network without normalisation of its activations starts and stays well
// scaled. The result is a plain convolution; nothing of it is seen by who computes one.

#include <torch/types.h>

#include "nn/encoder.h"

namespace ebclr::nn {

/// Least sum of squared deviations of an output channel's weights.
inline constexpr double kStandardisedEpsilon = 1e-4;

/// Gain that gives activated standard normal input a variance of 1 again: 1.5465 for a leaky ReLU of slope
/// 0.2, 1.7129 for a ReLU.
double activation_gain(Activation activation);

/// What is learned of one convolution.
struct RawConv {
  torch::Tensor weight;  ///< [O, I, k, k]
  torch::Tensor bias;    ///< [O]
  torch::Tensor gain;    ///< [O]
  torch::Tensor skip;    ///< [1], factor of a residual branch (SkipInit); undefined elsewhere
};

/// A convolution that computes what RawConv means.
struct PlainConv {
  torch::Tensor weight, bias;
};

/// Keeps the plain form of one convolution while the raw one does not change: computed once per update.
class StandardisedConv {
 public:
  StandardisedConv(RawConv raw, double scale) : raw_(std::move(raw)), scale_(scale) {}

  /// skip * gain * scale * (w - mean) / sqrt(sum (w - mean)^2 + epsilon) and skip * bias. Joins autograd
  /// where a raw tensor asks for a gradient; the memory of both tensors stays the same.
  PlainConv plain();

 private:
  void refresh();

  RawConv raw_;
  double scale_;
  PlainConv values_;  // without history; written in place, so that version counters tell of a change
  std::vector<std::pair<const void*, uint32_t>> made_from_;
};

}  // namespace ebclr::nn
