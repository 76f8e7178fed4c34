#include "methods/losses.h"

#include <torch/torch.h>

#include "ebm/objective.h"

namespace ebclr::methods {
namespace {

// Cosine of paired rows, [N].
torch::Tensor row_cosine(const torch::Tensor& a, const torch::Tensor& b) {
  return (ebm::unit_rows(a) * ebm::unit_rows(b)).sum(1);
}

}  // namespace

torch::Tensor nt_xent(const torch::Tensor& f1, const torch::Tensor& f2, double temperature) {
  // -||z - z'||^2 / (2t) = (cos - 1) / t: the constant cancels between numerator and denominator.
  return ebm::discriminative_loss(f1, f2, 2 * temperature, ebm::Discriminative::kSymmetric);
}

torch::Tensor moco_loss(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& queue,
                        double temperature) {
  const auto q = ebm::unit_rows(query), k = ebm::unit_rows(key.detach());
  const auto positive = (q * k).sum(1, /*keepdim=*/true);                            // [N, 1]
  const auto logits = torch::cat({positive, q.matmul(queue.t())}, 1) / temperature;  // [N, 1 + Q]
  return (torch::logsumexp(logits, 1) - logits.select(1, 0)).mean();
}

torch::Tensor simsiam_loss(const torch::Tensor& p1, const torch::Tensor& p2, const torch::Tensor& z1,
                           const torch::Tensor& z2) {
  return -(row_cosine(p1, z2).mean() + row_cosine(p2, z1).mean()) * 0.5;
}

torch::Tensor byol_loss(const torch::Tensor& p1, const torch::Tensor& p2, const torch::Tensor& target1,
                        const torch::Tensor& target2) {
  return 2 - row_cosine(p1, target2.detach()).mean() - row_cosine(p2, target1.detach()).mean();
}

JointTerm joint_term(const torch::Tensor& data, const torch::Tensor& samples, double penalty) {
  const auto e_data = ebm::class_energy(data), e_samples = ebm::class_energy(samples);
  JointTerm out{.energy_data = e_data.mean(), .energy_samples = e_samples.mean()};
  out.loss =
      out.energy_data - out.energy_samples + penalty * (e_data.square().mean() + e_samples.square().mean());
  return out;
}

}  // namespace ebclr::methods
