#include "ebclr/sampling.h"

#include <torch/torch.h>

#include "api/translate.h"
#include "core/rng.h"

namespace ebclr {

Energy::~Energy() = default;
Sampler::~Sampler() = default;

struct Noise::Impl {
  ebm::CounterNoise source;
};

Noise::Noise() = default;
Noise::Noise(uint64_t seed)
    : impl_(std::make_unique<Impl>(
          Impl{ebm::CounterNoise(core::make_key({seed, static_cast<uint64_t>(core::Stream::kLangevin)}))})) {}
Noise::~Noise() = default;

torch::Tensor Noise::draw(const torch::Tensor& like) {
  return impl_->source.draw(like);
}

namespace api {
namespace {

/// The rooms' noise for a sampler from outside.
class PublicNoise : public Noise {
 public:
  explicit PublicNoise(ebm::NoiseSource& source) : source_(source) {}
  torch::Tensor draw(const torch::Tensor& like) override { return source_.draw(like); }

 private:
  ebm::NoiseSource& source_;
};

/// Noise from outside for the rooms' sampler.
class InternalNoise : public ebm::NoiseSource {
 public:
  explicit InternalNoise(Noise& noise) : noise_(noise) {}
  torch::Tensor draw(const torch::Tensor& like) override { return noise_.draw(like); }

 private:
  Noise& noise_;
};

/// An energy from outside for the rooms' sampler.
class InternalEnergy : public ebm::Energy {
 public:
  explicit InternalEnergy(ebclr::Energy& energy) : energy_(energy) {}
  ebm::EnergyGrad evaluate(const torch::Tensor& v) override {
    auto value = energy_.evaluate(v);
    if (!value.energy.defined() || value.energy.dim() != 1 || value.energy.size(0) != v.size(0) ||
        !value.gradient.defined() || value.gradient.sizes() != v.sizes())
      input_error("[sampling] Energy::evaluate must return energies [N] and a gradient shaped like v");
    return {value.energy.detach(), value.gradient.detach()};
  }

 private:
  ebclr::Energy& energy_;
};

class InternalSampler : public ebm::Sampler {
 public:
  explicit InternalSampler(std::shared_ptr<ebclr::Sampler> sampler) : sampler_(std::move(sampler)) {}
  ebm::SampleResult run(ebm::Energy& energy, const torch::Tensor& v, const torch::Tensor& counts,
                        ebm::NoiseSource& noise) const override {
    PublicEnergy density(energy);
    PublicNoise source(noise);
    auto out = run_checked(*sampler_, density, v, counts, source);
    return {std::move(out.chains), std::move(out.energies)};
  }
  double forward_units() const override { return sampler_->forward_units(); }

 private:
  std::shared_ptr<ebclr::Sampler> sampler_;
};

class Langevin : public ebclr::Sampler {
 public:
  explicit Langevin(std::unique_ptr<ebm::Sampler> sampler) : sampler_(std::move(sampler)) {}
  SamplerResult run(ebclr::Energy& energy, const torch::Tensor& start, const torch::Tensor& visits,
                    Noise& noise) override {
    if (visits.dim() != 1 || visits.size(0) != start.size(0))
      input_error("[sampling] visits must be int64 [N], one per chain");
    return translated([&] {
      InternalEnergy density(energy);
      InternalNoise source(noise);
      auto out = sampler_->run(density, start, visits, source);
      return SamplerResult{out.chains, std::move(out.energies)};
    });
  }
  double forward_units() const override { return sampler_->forward_units(); }

 private:
  std::unique_ptr<ebm::Sampler> sampler_;
};

}  // namespace

Energy::Value PublicEnergy::evaluate(const torch::Tensor& v) {
  auto value = energy_.evaluate(v);
  return {value.energy, value.grad};
}

SamplerResult run_checked(Sampler& sampler, Energy& energy, const torch::Tensor& start,
                          const torch::Tensor& visits, Noise& noise) {
  auto out = sampler.run(energy, start.detach(), visits, noise);
  if (!out.chains.defined() || out.chains.sizes() != start.sizes())
    input_error("[sampling] Sampler::run must return chains shaped like their starts");
  out.chains = out.chains.detach().to(start.device(), start.scalar_type());
  return out;
}

std::unique_ptr<ebm::Sampler> to_internal(std::shared_ptr<Sampler> sampler) {
  return std::make_unique<InternalSampler>(std::move(sampler));
}

}  // namespace api

std::unique_ptr<Sampler> make_langevin(const LangevinOptions& o) {
  return api::translated([&] {
    ebm::SamplerOptions options;
    options.steps = o.steps;
    options.step_size = o.step_size;
    options.clamp = o.clamp;
    options.sigma_min = o.sigma_min;
    options.sigma_max = o.sigma_max;
    options.decay = o.decay;
    return std::make_unique<api::Langevin>(ebm::make_sampler(options));
  });
}

}  // namespace ebclr
