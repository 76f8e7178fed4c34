// A sampler of one's own (Metropolis-adjusted Langevin) and an energy of one's own (a ring in the plane),
// beside the library's Langevin sampler, which is quick and slightly wrong: it does not reject steps.
#include <ebclr/sampling.h>

#include <cmath>
#include <cstdio>
#include <memory>

namespace {

/// E(v) = (|v| - 2)^2 / (2 * 0.2^2): chains should gather on a circle of radius 2.
class Ring : public ebclr::Energy {
 public:
  Value evaluate(const torch::Tensor& v) override {  // v [N, 2]
    const auto radius = v.norm(2, 1, true);
    const auto offset = (radius - 2) / 0.04;
    return {((radius - 2).pow(2) / 0.08).squeeze(1), offset * v / radius.clamp_min(1e-6)};
  }
};

/// Proposes a Langevin step and accepts it with the probability that makes the density exact.
class Mala : public ebclr::Sampler {
 public:
  Mala(int64_t steps, double step) : steps_(steps), step_(step) {}

  ebclr::SamplerResult run(ebclr::Energy& energy, const torch::Tensor& start, const torch::Tensor& /*visits*/,
                           ebclr::Noise& noise) override {
    ebclr::SamplerResult out;
    auto v = start.clone();
    auto here = energy.evaluate(v);
    for (int64_t t = 0; t < steps_; ++t) {
      out.energies.push_back(here.energy);
      const auto proposal = v - step_ * here.gradient + std::sqrt(2 * step_) * noise.draw(v);
      auto there = energy.evaluate(proposal);
      const auto log_q = [&](const torch::Tensor& to, const torch::Tensor& from,
                             const torch::Tensor& gradient) {
        return -(to - from + step_ * gradient).pow(2).flatten(1).sum(1) / (4 * step_);
      };
      const auto log_accept =
          here.energy - there.energy + log_q(v, proposal, there.gradient) - log_q(proposal, v, here.gradient);
      // A uniform number from two normal ones, so that all randomness comes from `noise`.
      const auto pair = noise.draw(torch::empty({v.size(0), 2}));
      const auto uniform = torch::exp(-pair.pow(2).sum(1) / 2);
      const auto accept = uniform.log().lt(log_accept);
      v = torch::where(accept.unsqueeze(1), proposal, v);
      here.energy = torch::where(accept, there.energy, here.energy);
      here.gradient = torch::where(accept.unsqueeze(1), there.gradient, here.gradient);
    }
    out.chains = v;
    return out;
  }
  double forward_units() const override { return 2.0 * static_cast<double>(steps_ + 1); }

 private:
  int64_t steps_;
  double step_;
};

}  // namespace

int main() {
  Ring ring;
  Mala mala(400, 0.02);
  ebclr::LangevinOptions options;
  options.steps = 400;
  options.step_size = 0.02;
  options.clamp = 0;
  options.sigma_min = options.sigma_max = std::sqrt(2 * 0.02);
  const auto langevin = ebclr::make_langevin(options);

  ebclr::Noise starts(1);
  const auto start = starts.draw(torch::empty({2000, 2}));
  const auto visits = torch::zeros({2000}, torch::kInt64);
  std::printf("%-22s %8s %8s\n", "radius of the chains", "mean", "std");
  const auto show = [&](const char* name, ebclr::Sampler& sampler) {
    ebclr::Noise noise(7);
    const auto radius = sampler.run(ring, start, visits, noise).chains.norm(2, 1);
    std::printf("%-22s %8.3f %8.3f\n", name, radius.mean().item<double>(), radius.std().item<double>());
  };
  show("own, Metropolis", mala);
  show("library's Langevin", *langevin);
  std::printf("%-22s %8.3f %8.3f\n", "exact", 2.020, 0.199);  // integrals of r and r^2 against r exp(-E(r))
  return 0;
}
