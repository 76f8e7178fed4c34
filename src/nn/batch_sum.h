#pragma once
// BatchNorm whose batch is spread over several processes: its statistics, and the sums of its way back, are
// those of all parts together. Parts may differ in size; every process must make the same passes in the same
// order.

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <optional>
#include <span>

namespace ebclr::nn {

/// In place: the sum over all processes that share a batch; empty for a process alone.
using BatchSum = std::function<void(std::span<double>)>;

/// Sets it on every Encoder and Head among `module` and its children.
void share_batch(torch::nn::Module& module, const BatchSum& sum);

/// One BatchNorm: what it computes with, whatever its dimensions.
struct NormParts {
  torch::Tensor weight, bias;  ///< [C]; undefined without
  torch::Tensor running_mean, running_var, num_batches_tracked;
  double epsilon = 0;
  std::optional<double> momentum = {};  ///< none: the mean over all batches
};

/// BatchNorm in training of x [N, C, ...] over the batch of all processes. Gradients of weight and bias are
/// this part's; that of x is the whole batch's.
torch::Tensor shared_batch_norm(const torch::Tensor& x, const NormParts& norm, const BatchSum& sum);

/// The forward pass of a torch BatchNorm, over the shared batch where there is one.
template <class Norm>
torch::Tensor batch_norm(Norm& norm, const torch::Tensor& x, const BatchSum& sum) {
  if (!sum || !norm->is_training()) return norm->forward(x);
  NormParts parts{
      norm->weight,       norm->bias, norm->running_mean, norm->running_var, norm->num_batches_tracked,
      norm->options.eps()};
  if (norm->options.momentum()) parts.momentum = *norm->options.momentum();
  return shared_batch_norm(x, parts, sum);
}

}  // namespace ebclr::nn
