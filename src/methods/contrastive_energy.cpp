#include "methods/contrastive_energy.h"

#include <torch/torch.h>

#include <algorithm>

#include "ebm/objective.h"

namespace ebclr::methods {

ContrastiveEnergy::ContrastiveEnergy(nn::Encoder& encoder, nn::Head& head, torch::Tensor references,
                                     double tau, int cut)
    : NetworkEnergy(encoder, head, cut), references_(references.detach()), tau_(tau) {}

torch::Tensor ContrastiveEnergy::of_outputs(const torch::Tensor& f) const {
  return ebm::energy(f, references_, tau_);
}

torch::Tensor ClassEnergy::of_outputs(const torch::Tensor& f) const {
  return ebm::class_energy(f);
}

ebm::EnergyGrad NetworkEnergy::evaluate(const torch::Tensor& v) {
  nn::FreezeParameters freeze({&encoder_, &head_});
  torch::AutoGradMode grad_on(true);
  const auto x = v.detach().requires_grad_();
  const auto e = of_outputs(head_.forward(encoder_.forward(x)));
  return {e.detach(), torch::autograd::grad({e.sum()}, {x})[0]};
}

std::optional<ebm::SampleResult> ContrastiveEnergy::run_langevin(const torch::Tensor& v,
                                                                 const ebm::LangevinPlan& plan,
                                                                 ebm::NoiseSource& noise) {
  nn::EncoderBackend* backend = encoder_.backend();
  const bool bfloat16 = plan.precision == ebm::Precision::kBfloat16;
  if (backend == nullptr || !backend->takes_chains(v, head_)) return std::nullopt;
  if (bfloat16 && !backend->has_bfloat16_chains()) return std::nullopt;
  const nn::ChainEnd end =
      backend->run_chains(v, {.head = head_,
                              .references = references_,
                              .tau = tau_,
                              .steps = plan.steps,
                              .inner = plan.inner,
                              .cut = cut_,
                              .step_size = plan.step_size,
                              .clamp = plan.clamp,
                              .sigma = plan.sigma,
                              .bfloat16 = bfloat16,
                              .noise = noise.draw_ahead(v, plan.steps * std::max<int64_t>(plan.inner, 1))});
  return ebm::SampleResult{end.chains, end.energies.unbind(0)};
}

ebm::EnergyGrad NetworkEnergy::costate(const torch::Tensor& v) {
  nn::FreezeParameters freeze({&encoder_, &head_});
  torch::Tensor h;
  {
    torch::NoGradGuard no_grad;
    h = encoder_.forward_to_cut(v, cut_);
  }
  torch::AutoGradMode grad_on(true);
  h.requires_grad_();
  const auto e = of_outputs(head_.forward(encoder_.forward_from_cut(h, cut_)));
  return {e.detach(), torch::autograd::grad({e.sum()}, {h})[0]};
}

torch::Tensor NetworkEnergy::pull_back(const torch::Tensor& v, const torch::Tensor& p) {
  nn::FreezeParameters freeze({&encoder_, &head_});
  torch::AutoGradMode grad_on(true);
  const auto x = v.detach().requires_grad_();
  return torch::autograd::grad({encoder_.forward_to_cut(x, cut_)}, {x}, {p})[0];
}

torch::Tensor NetworkEnergy::value(const torch::Tensor& v) {
  torch::NoGradGuard no_grad;
  return of_outputs(head_.forward(encoder_.forward(v)));
}

}  // namespace ebclr::methods
