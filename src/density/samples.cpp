#include "density/samples.h"

#include <torch/torch.h>

#include <algorithm>

#include "ebm/sampler.h"

namespace ebclr::density {
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

DrawnSamples draw_samples(const Density& density, torch::Tensor start, const SampleOptions& o) {
  const auto& method = density.options;
  const auto energy = energy_function(density);
  WatchedEnergy watched(*energy, o.steps, o.progress);
  ebm::CounterNoise noise(core::make_key({o.seed, static_cast<uint64_t>(core::Stream::kLangevin)}));
  DrawnSamples out;
  out.energy_start = energy->value(start).to(torch::kCPU);
  auto sampler = method.sampler;
  if (sampler.kind == ebm::SamplerKind::kYopo) sampler.kind = ebm::SamplerKind::kMsgld;  // exact steps here
  sampler.precision = ebm::Precision::kFloat;
  auto v = std::move(start);
  const int64_t visit = ebm::steps_per_visit(method.sampler);
  int64_t age = o.age;
  for (int64_t done = 0; done < o.steps; ++age) {
    sampler.steps = std::min(visit, o.steps - done);
    const auto counts = torch::full({v.size(0)}, age, torch::kInt64);
    v = ebm::make_sampler(sampler)->run(watched, v, counts, noise).chains;
    done += sampler.steps;
  }
  out.samples = v;
  out.energy_end = energy->value(v).to(torch::kCPU);
  out.out_of_range = v.abs().gt(1).to(torch::kFloat32).mean().item<double>();
  return out;
}

}  // namespace ebclr::density
