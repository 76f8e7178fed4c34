#include "eval/energy.h"

#include <torch/torch.h>

#include "ebm/objective.h"
#include "eval/features.h"
#include "methods/contrastive_energy.h"

namespace ebclr::eval {
torch::Tensor outputs(nn::Encoder& encoder, nn::Head& head, const torch::Tensor& images, int64_t batch,
                      torch::Device device) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (int64_t i = 0; i < images.size(0); i += batch)
    parts.push_back(
        head.forward(encoder.forward(images.narrow(0, i, std::min(batch, images.size(0) - i)).to(device))));
  return torch::cat(parts);
}

torch::Tensor energies(nn::Encoder& encoder, nn::Head& head, const torch::Tensor& references, double tau,
                       const data::ImageSet& set) {
  const auto f = features(encoder, set, {.head = &head});
  return ebm::energy(f, references.to(f.device()), tau).to(torch::kCPU);
}

DrawnSamples draw_samples(nn::Encoder& encoder, nn::Head& head, const torch::Tensor& references,
                          const methods::EbclrOptions& options, torch::Tensor start, int64_t steps,
                          int64_t age, uint64_t seed) {
  methods::ContrastiveEnergy energy(encoder, head, references, options.objective.tau, options.cut);
  ebm::CounterNoise noise(core::make_key({seed, static_cast<uint64_t>(core::Stream::kLangevin)}));
  DrawnSamples out;
  out.energy_start = energy.value(start).to(torch::kCPU);
  auto sampler_options = options.sampler;
  if (sampler_options.kind == ebm::SamplerKind::kYopo)
    sampler_options.kind = ebm::SamplerKind::kMsgld;  // exact steps here
  auto v = start;
  for (int64_t done = 0; done < steps; ++age) {
    sampler_options.steps = std::min(options.sampler.steps, steps - done);
    const auto counts = torch::full({v.size(0)}, age, torch::kInt64);
    v = ebm::make_sampler(sampler_options)->run(energy, v, counts, noise).chains;
    done += sampler_options.steps;
  }
  out.samples = v;
  out.energy_end = energy.value(v).to(torch::kCPU);
  out.out_of_range = v.abs().gt(1).to(torch::kFloat32).mean().item<double>();
  return out;
}

}  // namespace ebclr::eval
