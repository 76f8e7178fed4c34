#include "ebm/objective.h"

#include <torch/torch.h>

#include <limits>

namespace ebclr::ebm {
namespace {

// logits [N, N'] with the diagonal block entries (i, i) left out of any sum.
torch::Tensor without_self(const torch::Tensor& logits) {
  const auto self = torch::eye(logits.size(0), logits.size(1), logits.options().dtype(torch::kBool));
  return logits.masked_fill(self, -std::numeric_limits<double>::infinity());
}

}  // namespace

torch::Tensor unit_rows(const torch::Tensor& f) {
  return f / (f.norm(2, 1, true) + 1e-10);
}

torch::Tensor pair_logits(const torch::Tensor& z, const torch::Tensor& z_other, double tau) {
  return (z.matmul(z_other.t()) * 2 - 2) / tau;
}

torch::Tensor class_energy(const torch::Tensor& logits) {
  return -torch::logsumexp(logits, 1);
}

torch::Tensor energy(const torch::Tensor& f, const torch::Tensor& references, double tau) {
  return -torch::logsumexp(pair_logits(unit_rows(f), unit_rows(references), tau), 1);
}

torch::Tensor energy_among_views(const torch::Tensor& f1, const torch::Tensor& f2, double tau) {
  const auto z1 = unit_rows(f1);
  const auto logits = pair_logits(z1, torch::cat({z1, unit_rows(f2)}), tau);  // [N, 2N]
  return -torch::logsumexp(without_self(logits), 1);
}

torch::Tensor discriminative_loss(const torch::Tensor& f1, const torch::Tensor& f2, double tau,
                                  Discriminative form) {
  const auto z1 = unit_rows(f1), z2 = unit_rows(f2);
  const auto all = torch::cat({z1, z2});  // [2N, D]
  const auto n = z1.size(0);
  const auto anchors = form == Discriminative::kSymmetric ? all : z1;
  const auto logits = without_self(pair_logits(anchors, all, tau));  // [2N or N, 2N]
  auto positives = torch::diagonal(logits, n);                       // anchor n of view 1 with its view 2
  if (form == Discriminative::kSymmetric) positives = torch::cat({positives, torch::diagonal(logits, -n)});
  return (torch::logsumexp(logits, 1) - positives).mean();
}

Objective ebclr_objective(const torch::Tensor& f1, const torch::Tensor& f2, const torch::Tensor& fn,
                          const ObjectiveOptions& o) {
  Objective out;
  out.discriminative = discriminative_loss(f1, f2, o.tau, o.discriminative);
  out.loss = out.discriminative * o.gamma;
  if (o.view_l2 > 0) out.loss = out.loss + f1.square().sum() * o.view_l2;
  if (!fn.defined()) return out;
  const bool wide = o.marginal == Marginal::kApprox2;
  out.energy_data = (wide ? energy_among_views(f1, f2, o.tau) : energy(f1, f2, o.tau)).mean();
  out.energy_samples = energy(fn, wide ? torch::cat({f1, f2}) : f2, o.tau).mean();
  auto samples_norm = fn.square().sum();
  if (fn.size(0) != f1.size(0))
    samples_norm = samples_norm * (static_cast<double>(f1.size(0)) / static_cast<double>(fn.size(0)));
  out.output_penalty = f1.square().sum() + samples_norm;
  out.loss = out.loss + (out.energy_data - out.energy_samples + out.output_penalty * o.output_l2) * o.lambda;
  return out;
}

torch::Tensor sampler_references(const torch::Tensor& f1, const torch::Tensor& f2, Marginal marginal) {
  return marginal == Marginal::kApprox2 ? torch::cat({f1.detach(), f2.detach()}) : f2.detach();
}

}  // namespace ebclr::ebm
