#include "methods/contrastive_energy.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ebm/objective.h"
#include "golden.h"
#include "golden_energy.h"

namespace ebclr::methods {
namespace {
using testing::GivenNoise;
using testing::golden;
using testing::golden_float;
using testing::GoldenNet;
using testing::relative_error;

TEST(ContrastiveEnergy, Golden) {
  GoldenNet net;
  auto energy = net.energy("energy_w8.reference_images");
  const auto [e, grad] = energy.evaluate(golden_float("energy_w8.input"));
  EXPECT_LT(relative_error(e, golden("energy_w8.energy")), 1e-5);
  EXPECT_LT(relative_error(grad, golden("energy_w8.input_grad")), 1e-3);
  EXPECT_LT(relative_error(energy.value(golden_float("energy_w8.input")), golden("energy_w8.energy")), 1e-5);
  for (const auto& p : net.encoder.parameters())
    EXPECT_FALSE(p.grad().defined()) << "sampling computes no weight gradients";
}

TEST(ContrastiveEnergy, CutGradientIsTheWholeGradient) {
  GoldenNet net;
  torch::NoGradGuard guard;
  const auto references = net.head.forward(net.encoder.forward(golden_float("energy_w8.reference_images")));
  for (int cut : {0, 1}) {
    ContrastiveEnergy energy(net.encoder, net.head, references, 0.1, cut);
    const auto x = golden_float("energy_w8.input");
    const auto [e, p] = energy.costate(x);
    EXPECT_LT(relative_error(e, golden("energy_w8.energy")), 1e-5);
    EXPECT_LT(relative_error(energy.pull_back(x, p), golden("energy_w8.input_grad")), 1e-3);
  }
}

TEST(ClassEnergy, IsMinusLogSumExpOfTheLogitsAndItsCutGradientIsTheWholeOne) {
  GoldenNet net;
  const auto x = golden_float("energy_w8.input");
  torch::Tensor want, want_grad;
  {
    const auto v = x.clone().requires_grad_();
    want = -net.head.forward(net.encoder.forward(v)).to(torch::kFloat64).exp().sum(1).log();
    want_grad = torch::autograd::grad({want.sum()}, {v})[0];
  }
  for (int cut : {0, 1}) {
    ClassEnergy energy(net.encoder, net.head, cut);
    const auto [e, grad] = energy.evaluate(x);
    EXPECT_LT(relative_error(e, want), 1e-5);
    EXPECT_LT(relative_error(grad, want_grad), 1e-4);
    EXPECT_LT(relative_error(energy.pull_back(x, energy.costate(x).grad), want_grad), 1e-4);
  }
  for (const auto& p : net.encoder.parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(Msgld, Golden) {
  GoldenNet net;
  auto energy = net.energy("msgld_w8.reference_images");
  const auto sampler = ebm::make_sampler({.clamp = 0.02});
  GivenNoise noise(golden_float("msgld_w8.noise"));
  const auto out = sampler->run(energy, golden_float("msgld_w8.start"), golden("msgld_w8.counts"), noise);
  EXPECT_LT(relative_error(out.chains, golden("msgld_w8.result")), 1e-5);
  EXPECT_LT(relative_error(torch::stack(out.energies), golden("msgld_w8.energies")), 1e-5);
}

TEST(Msgld, GoldenNoiseless) {
  GoldenNet net;
  auto energy = net.energy("msgld_w8.reference_images");
  const auto sampler = ebm::make_sampler({.clamp = 0.02, .sigma_min = 0, .sigma_max = 0});
  ebm::CounterNoise noise(0);
  const auto out = sampler->run(energy, golden_float("msgld_w8.start"), golden("msgld_w8.counts"), noise);
  EXPECT_LT(relative_error(out.chains, golden("msgld_w8_noiseless.result")), 1e-5);
  EXPECT_LT(relative_error(torch::stack(out.energies), golden("msgld_w8_noiseless.energies")), 1e-5);
}

TEST(Yopo, LowersTheEnergyOfTheGoldenChains) {
  GoldenNet net;
  auto energy = net.energy("msgld_w8.reference_images");
  const auto start = golden_float("msgld_w8.start");
  ebm::CounterNoise noise(0);
  const auto sampler = ebm::make_sampler(
      {.kind = ebm::SamplerKind::kYopo, .sigma_min = 0, .sigma_max = 0, .outer = 3, .inner = 3});
  const auto out = sampler->run(energy, start, golden("msgld_w8.counts"), noise);
  EXPECT_EQ(out.energies.size(), 3u);
  EXPECT_LT(energy.value(out.chains).mean().item<double>(), energy.value(start).mean().item<double>());
}

}  // namespace
}  // namespace ebclr::methods
