#include "eval/energy.h"

#include <torch/torch.h>

#include "ebm/objective.h"
#include "eval/features.h"
#include "methods/contrastive_energy.h"

namespace ebclr::eval {
namespace {

/// Tells before each gradient how many of the steps are done.
class WatchedEnergy : public ebm::Energy {
 public:
  WatchedEnergy(ebm::Energy& energy, int64_t steps, const std::function<void(double)>& progress)
      : energy_(energy), steps_(steps), progress_(progress) {}
  ebm::EnergyGrad evaluate(const torch::Tensor& v) override {
    if (progress_) progress_(static_cast<double>(asked_++) / static_cast<double>(steps_));
    return energy_.evaluate(v);
  }

 private:
  ebm::Energy& energy_;
  int64_t steps_, asked_ = 0;
  const std::function<void(double)>& progress_;
};

}  // namespace

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
                          int64_t age, uint64_t seed, const std::function<void(double)>& progress) {
  methods::ContrastiveEnergy energy(encoder, head, references, options.objective.tau, options.cut);
  WatchedEnergy watched(energy, steps, progress);
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
    v = ebm::make_sampler(sampler_options)->run(watched, v, counts, noise).chains;
    done += sampler_options.steps;
  }
  out.samples = v;
  out.energy_end = energy.value(v).to(torch::kCPU);
  out.out_of_range = v.abs().gt(1).to(torch::kFloat32).mean().item<double>();
  return out;
}

}  // namespace ebclr::eval
