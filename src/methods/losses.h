#pragma once
// Losses of the rivals, and of learning from labels, as pure functions of network outputs.

#include <torch/types.h>

namespace ebclr::methods {

/// NT-Xent over 2N views, cosine similarity over `temperature`; outputs [N, D] each; scalar.
torch::Tensor nt_xent(const torch::Tensor& f1, const torch::Tensor& f2, double temperature);
/// InfoNCE of queries [N, D] with their keys [N, D] (no gradient) against a queue of unit rows [Q, D];
/// scalar.
torch::Tensor moco_loss(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& queue,
                        double temperature);
/// Mean negative cosine of both directions; z are targets (detached by the caller); scalar in [-1, 1].
torch::Tensor simsiam_loss(const torch::Tensor& p1, const torch::Tensor& p2, const torch::Tensor& z1,
                           const torch::Tensor& z2);
/// Mean of 2 - 2 cosine, averaged over both directions; targets without gradient; scalar.
torch::Tensor byol_loss(const torch::Tensor& p1, const torch::Tensor& p2, const torch::Tensor& target1,
                        const torch::Tensor& target2);

/// The generative term of JEM's joint objective and its parts, scalars.
struct JointTerm {
  torch::Tensor loss = {};
  torch::Tensor energy_data = {}, energy_samples = {};  ///< means
};
/// mean E(data) - mean E(samples) + penalty * (mean E(data)^2 + mean E(samples)^2) with E = -logsumexp of the
/// logits. data [N, K], samples [M, K].
JointTerm joint_term(const torch::Tensor& data, const torch::Tensor& samples, double penalty);

}  // namespace ebclr::methods
