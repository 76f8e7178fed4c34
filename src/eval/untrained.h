#pragma once

#include "eval/judge.h"
#include "run/run.h"

namespace ebclr::eval {

/// The run's encoder with its first weights, for the baseline of what training adds. BatchNorm gets the
/// statistics of train images (no labels): with the first ones, mean 0 and variance 1, no activation would be
/// what the encoder gives in training, and the baseline something else.
run::Model untrained_model(const run::Run& run, const EvalSets& sets);

/// Sets the running statistics of every BatchNorm of the encoder to those of images uint8 [N, C, H, W]: the
/// mean over batches in training mode. Does nothing to an encoder without BatchNorm. The mode is restored.
void set_norm_statistics(nn::Encoder& encoder, const torch::Tensor& images);

}  // namespace ebclr::eval
