#include "ebm/objective.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "golden.h"

namespace ebclr::ebm {
namespace {
using testing::golden;
using testing::golden_double;
using testing::relative_error;

struct Outputs {
  torch::Tensor f1, f2, fn;
};

Outputs golden_outputs() {
  return {golden_double("ebclr_loss.z1").requires_grad_(), golden_double("ebclr_loss.z2").requires_grad_(),
          golden_double("ebclr_loss.zn").requires_grad_()};
}

TEST(Objective, GoldenLossAndGradients) {
  auto [f1, f2, fn] = golden_outputs();
  const auto objective = ebclr_objective(f1, f2, fn, {});
  EXPECT_LT(relative_error(objective.loss, golden("ebclr_loss.loss")), 1e-6);
  EXPECT_LT(relative_error(objective.discriminative, golden("ebclr_loss.disc_symmetric")), 1e-6);
  objective.loss.backward();
  EXPECT_LT(relative_error(f1.grad(), golden("ebclr_loss.grad_z1")), 1e-6);
  EXPECT_LT(relative_error(f2.grad(), golden("ebclr_loss.grad_z2")), 1e-6);
  EXPECT_LT(relative_error(fn.grad(), golden("ebclr_loss.grad_zn")), 1e-6);
}

TEST(Objective, GoldenParts) {
  auto [f1, f2, fn] = golden_outputs();
  EXPECT_LT(relative_error(discriminative_loss(f1, f2, 0.1, Discriminative::kOneWay),
                           golden("ebclr_loss.disc_oneway")),
            1e-6);
  EXPECT_LT(relative_error(energy(f1, f2, 0.1), golden("ebclr_loss.energy_data")), 1e-6);
  EXPECT_LT(relative_error(energy(fn, f2, 0.1), golden("ebclr_loss.energy_noise")), 1e-6);
  EXPECT_LT(relative_error(energy_among_views(f1, f2, 0.1), golden("ebclr_loss.energy_data_2n")), 1e-6);
}

TEST(Objective, GradientsMatchFiniteDifferencesInEveryForm) {
  for (auto form : {Discriminative::kSymmetric, Discriminative::kOneWay})
    for (auto marginal : {Marginal::kApprox1, Marginal::kApprox2}) {
      ObjectiveOptions options{.tau = 0.3,
                               .lambda = 0.7,
                               .gamma = 0.4,
                               .output_l2 = 0.01,
                               .discriminative = form,
                               .marginal = marginal};
      auto [f1, f2, fn] = golden_outputs();
      ebclr_objective(f1, f2, fn, options).loss.backward();
      for (auto* t : {&f1, &f2, &fn}) {
        const auto direction = torch::cos(torch::arange(t->numel(), torch::kFloat64)).view(t->sizes());
        const double analytic = (t->grad() * direction).sum().item<double>();
        const double h = 1e-6;
        torch::NoGradGuard guard;
        t->add_(direction, h);
        const double up = ebclr_objective(f1, f2, fn, options).loss.item<double>();
        t->sub_(direction, 2 * h);
        const double down = ebclr_objective(f1, f2, fn, options).loss.item<double>();
        t->add_(direction, h);
        EXPECT_NEAR(analytic, (up - down) / (2 * h), 1e-6 * std::max(1.0, std::abs(analytic)));
      }
    }
}

TEST(Objective, WeightsScaleTheirTerms) {
  auto [f1, f2, fn] = golden_outputs();
  const auto base = ebclr_objective(f1, f2, fn, {.lambda = 1, .gamma = 0});
  const double generative =
      (base.energy_data - base.energy_samples + 0.001 * base.output_penalty).item<double>();
  EXPECT_NEAR(base.loss.item<double>(), generative, 1e-10);
  const auto only_disc = ebclr_objective(f1, f2, {}, {.gamma = 3});
  EXPECT_NEAR(only_disc.loss.item<double>(), 3 * only_disc.discriminative.item<double>(), 1e-10);
}

TEST(Objective, FewSamplesArePenalisedAsIfTheyWereOnePerImage) {
  auto [f1, f2, fn] = golden_outputs();
  const auto few = fn.narrow(0, 0, 2);
  const auto objective = ebclr_objective(f1, f2, few, {});
  EXPECT_NEAR(objective.output_penalty.item<double>(),
              (f1.square().sum() + few.square().sum() * 4).item<double>(), 1e-8);
  EXPECT_NEAR(objective.energy_samples.item<double>(), energy(few, f2, 0.1).mean().item<double>(), 1e-10);
}

TEST(Objective, ViewPenaltyIsThatOfTheGenerativeTermWithoutIt) {
  auto [f1, f2, fn] = golden_outputs();
  const auto plain = ebclr_objective(f1, f2, {}, {.lambda = 0});
  const auto careful = ebclr_objective(f1, f2, {}, {.lambda = 0, .view_l2 = 0.1 * 0.001});
  EXPECT_NEAR((careful.loss - plain.loss).item<double>(), 0.1 * 0.001 * f1.square().sum().item<double>(),
              1e-10);
}

TEST(Objective, SamplerReferencesCarryNoGradient) {
  auto [f1, f2, fn] = golden_outputs();
  EXPECT_FALSE(sampler_references(f1, f2, Marginal::kApprox1).requires_grad());
  EXPECT_EQ(sampler_references(f1, f2, Marginal::kApprox1).size(0), 8);
  EXPECT_FALSE(sampler_references(f1, f2, Marginal::kApprox2).requires_grad());
  EXPECT_EQ(sampler_references(f1, f2, Marginal::kApprox2).size(0), 16);
}

}  // namespace
}  // namespace ebclr::ebm
