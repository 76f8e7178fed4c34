#include "ebm/sampler.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "expect_error.h"

namespace ebclr::ebm {
namespace {

// E(v) = |v|^2 / (2 s^2): its chains are autoregressive, so their stationary moments are known exactly.
class GaussianEnergy : public Energy {
 public:
  explicit GaussianEnergy(double s) : s2_(s * s) {}
  EnergyGrad evaluate(const torch::Tensor& v) override {
    ++evaluations;
    return {v.square().sum(1) / (2 * s2_), v / s2_};
  }
  int evaluations = 0;

 private:
  double s2_;
};

// E(v) = |tanh(v) - c|^2 / 2, cut at h = tanh(v).
class TanhEnergy : public CutEnergy {
 public:
  EnergyGrad evaluate(const torch::Tensor& v) override {
    auto [e, p] = costate(v);
    return {e, pull_back(v, p)};
  }
  EnergyGrad costate(const torch::Tensor& v) override {
    ++full;
    const auto r = torch::tanh(v) - 0.3;
    return {r.square().sum(1) / 2, r};
  }
  torch::Tensor pull_back(const torch::Tensor& v, const torch::Tensor& p) override {
    ++partial;
    return p * (1 - torch::tanh(v).square());
  }
  int full = 0, partial = 0;
};

TEST(Sgld, ReachesTheMomentsThatStepAndNoiseImply) {
  // v' = (1 - a/s^2) v + sigma e has variance sigma^2 / (1 - (1 - a/s^2)^2).
  const double a = 0.05, s = 0.5, sigma = 0.1, r = 1 - a / (s * s);
  const auto sampler = make_sampler({.kind = SamplerKind::kSgld,
                                     .steps = 200,
                                     .step_size = a,
                                     .clamp = 0,
                                     .sigma_min = sigma,
                                     .sigma_max = sigma});
  GaussianEnergy energy(s);
  CounterNoise noise(3);
  const auto out =
      sampler->run(energy, torch::full({2000, 10}, 2.0), torch::zeros({2000}, torch::kInt64), noise);
  EXPECT_EQ(energy.evaluations, 200);
  EXPECT_NEAR(out.chains.mean().item<double>(), 0, 0.005);
  EXPECT_NEAR(out.chains.var().item<double>() / (sigma * sigma / (1 - r * r)), 1, 0.03);
}

TEST(Sgld, ProximalClampBoundsTheDrift) {
  GaussianEnergy energy(0.1);  // gradient 100 v
  CounterNoise noise(4);
  const auto start = torch::full({3, 4}, 5.0);
  const auto counts = torch::zeros({3}, torch::kInt64);
  const auto clamped = make_sampler({.kind = SamplerKind::kSgld,
                                     .steps = 1,
                                     .step_size = 0.05,
                                     .clamp = 1.0,
                                     .sigma_min = 0,
                                     .sigma_max = 0});
  EXPECT_NEAR((start - clamped->run(energy, start, counts, noise).chains).max().item<double>(), 0.05, 1e-6);
  const auto free = make_sampler({.kind = SamplerKind::kSgld,
                                  .steps = 1,
                                  .step_size = 0.05,
                                  .clamp = 0,
                                  .sigma_min = 0,
                                  .sigma_max = 0});
  EXPECT_NEAR((start - free->run(energy, start, counts, noise).chains).max().item<double>(), 25, 1e-4);
}

TEST(Msgld, NoiseFallsWithVisits) {
  const auto counts = torch::tensor({0, 1, 2, 3, 10}, torch::kInt64);
  const auto sigma = noise_scale(counts, {});
  const auto want = torch::tensor({0.05, 0.01 + 0.04 * 2 / 3, 0.01 + 0.04 / 3, 0.01, 0.01});
  EXPECT_LT((sigma - want).abs().max().item<double>(), 1e-7);
  // And each chain feels its own scale.
  GaussianEnergy flat(1e6);
  CounterNoise noise(5);
  const auto out = make_sampler({.steps = 1})->run(flat, torch::zeros({5, 50000}), counts, noise);
  EXPECT_LT((out.chains.std(1) / want - 1).abs().max().item<double>(), 0.02);
}

TEST(Msgld, EqualBoundsAreSgld) {
  GaussianEnergy energy(1);
  const auto start = torch::ones({4, 6});
  const auto counts = torch::tensor({0, 1, 2, 3}, torch::kInt64);
  CounterNoise a(9), b(9);
  const auto m = make_sampler({.sigma_min = 0.02, .sigma_max = 0.02})->run(energy, start, counts, a);
  const auto s = make_sampler({.kind = SamplerKind::kSgld, .sigma_min = 0.02, .sigma_max = 0.02})
                     ->run(energy, start, counts, b);
  EXPECT_TRUE(torch::allclose(m.chains, s.chains, 0, 1e-7));
}

TEST(Yopo, OneInnerStepIsPlainLangevin) {
  TanhEnergy energy;
  const auto start = torch::linspace(-1, 1, 12).view({3, 4});
  const auto counts = torch::zeros({3}, torch::kInt64);
  CounterNoise a(1), b(1);
  const auto yopo =
      make_sampler({.kind = SamplerKind::kYopo, .outer = 10, .inner = 1})->run(energy, start, counts, a);
  EXPECT_EQ(energy.full, 10);
  const auto msgld = make_sampler({.steps = 10})->run(energy, start, counts, b);
  EXPECT_TRUE(torch::equal(yopo.chains, msgld.chains));
}

TEST(Yopo, InnerStepsReuseTheCostate) {
  TanhEnergy energy;
  CounterNoise noise(1);
  const auto start = torch::full({2, 3}, 0.5);
  const SamplerOptions options{.kind = SamplerKind::kYopo,
                               .step_size = 0.1,
                               .clamp = 0,
                               .sigma_min = 0,
                               .sigma_max = 0,
                               .outer = 1,
                               .inner = 3};
  const auto out = make_sampler(options)->run(energy, start, torch::zeros({2}, torch::kInt64), noise);
  EXPECT_EQ(energy.full, 1);
  EXPECT_EQ(energy.partial, 3);
  double v = 0.5;
  const double p = std::tanh(0.5) - 0.3;
  for (int i = 0; i < 3; ++i) v -= 0.1 * p * (1 - std::tanh(v) * std::tanh(v));
  EXPECT_NEAR(out.chains[0][0].item<double>(), v, 1e-6);
  GaussianEnergy uncut(1);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { make_sampler(options)->run(uncut, start, torch::zeros({2}), noise); },
      "no cut layer");
}

// Whoever moves which rows: each gets the numbers that it would get in the whole batch.
TEST(RowsNoise, IsThatOfTheWholeBatch) {
  const auto all = torch::empty({7, 3, 5});
  CounterNoise whole(8, 100);
  const std::vector<torch::Tensor> draws = {whole.draw(all), whole.draw(all), whole.draw(all)};
  const std::pair<int64_t, int64_t> parts[] = {{0, 7}, {0, 2}, {2, 3}, {3, 7}};
  for (const auto& [first, end] : parts) {
    const auto like = torch::empty({end - first, 3, 5});
    CounterNoise step_by_step(8, 100), ahead(8, 100);
    RowsNoise rows(step_by_step, first, 7);
    for (const auto& d : draws) EXPECT_TRUE(torch::equal(rows.draw(like), d.slice(0, first, end)));
    EXPECT_EQ(step_by_step.counter(), whole.counter());
    const auto read = RowsNoise(ahead, first, 7).draw_ahead(like, 3);
    EXPECT_EQ(ahead.counter(), whole.counter());
    // Across the borders of draws, from an odd place.
    std::vector<float> got(static_cast<size_t>(like.numel() * 3 - 4)), want;
    read(4, got);
    for (const auto& d : draws) {
      const auto flat = d.slice(0, first, end).contiguous().view({-1});
      want.insert(want.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
    }
    want.erase(want.begin(), want.begin() + 4);
    EXPECT_EQ(got, want);
  }
}

TEST(CounterNoise, ContinuesFromItsCounterAndIgnoresThreads) {
  CounterNoise a(8);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto whole = torch::cat({a.draw(torch::empty({30000})), a.draw(torch::empty({50001}))});
  at::set_num_threads(2);
  CounterNoise b(8);
  b.draw(torch::empty({30000}));
  CounterNoise c(b.key(), b.counter());
  EXPECT_TRUE(torch::equal(c.draw(torch::empty({50001})), whole.narrow(0, 30000, 50001)));
  at::set_num_threads(threads);
}

TEST(Sampler, DoesNotFallBackToFloatWithoutAWord) {
  for (const auto kind : {SamplerKind::kMsgld, SamplerKind::kYopo}) {
    const auto sampler = make_sampler({.kind = kind, .precision = Precision::kBfloat16});
    TanhEnergy energy;
    CounterNoise noise(1);
    testing::expect_error(
        core::ExitCode::kUsage,
        [&] {
          sampler->run(energy, torch::zeros({2, 3}), torch::zeros({2}, torch::kInt64), noise);
        },
        "--set sampler.precision=float");
    EXPECT_EQ(noise.counter(), 0u);
  }
}

TEST(Sampler, RefusesNonsense) {
  using core::ExitCode;
  const auto refuse = [](SamplerOptions o, const char* text) {
    testing::expect_error(
        ExitCode::kUsage, [&] { make_sampler(o); }, text);
  };
  refuse({.steps = 0}, "sampler.steps 0");
  refuse({.step_size = 0}, "sampler.step_size");
  refuse({.clamp = -1}, "sampler.clamp");
  refuse({.sigma_min = 0.1, .sigma_max = 0.05}, "sigma_min");
  refuse({.kind = SamplerKind::kSgld}, "one noise level");
  refuse({.kind = SamplerKind::kYopo, .outer = 0}, "sampler.outer");
}

}  // namespace
}  // namespace ebclr::ebm
