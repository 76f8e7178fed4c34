#include "ebm/balance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "expect_error.h"

namespace ebclr::ebm {
namespace {

TEST(Balance, CorrectsOncePerWindowAndNoFasterThanItsRate) {
  Balance b({.kind = BalanceKind::kStepSize, .target = 1, .width = 2, .rate = 0.1, .window = 2}, 0.05);
  EXPECT_FALSE(b.observe(2));
  EXPECT_TRUE(b.observe(2));  // one above the target: half of the full rate
  EXPECT_NEAR(b.value(), 0.05 * std::exp(0.05), 1e-12);
  b.observe(100);
  b.observe(100);  // far above: the full rate, no more
  EXPECT_NEAR(b.value(), 0.05 * std::exp(0.15), 1e-12);
  b.observe(-100);
  b.observe(-100);
  EXPECT_NEAR(b.value(), 0.05 * std::exp(0.05), 1e-12);
  b.observe(0);
  EXPECT_FALSE(b.observe(2)) << "the mean is on target";
}

TEST(Balance, WeightsMoveTheOtherWay) {
  Balance steps({.kind = BalanceKind::kSteps, .window = 1}, 10),
      weight({.kind = BalanceKind::kLambda, .window = 1}, 1);
  steps.observe(5);
  weight.observe(5);
  EXPECT_GT(steps.value(), 10);
  EXPECT_LT(weight.value(), 1);
}

TEST(Balance, StaysWithinItsLimits) {
  Balance b({.kind = BalanceKind::kStepSize, .rate = 1, .window = 1, .low = 0.02, .high = 0.2}, 0.05);
  for (int i = 0; i < 9; ++i) b.observe(9);
  EXPECT_EQ(b.value(), 0.2);
  for (int i = 0; i < 9; ++i) b.observe(-9);
  EXPECT_EQ(b.value(), 0.02);
  Balance automatic({.kind = BalanceKind::kSteps, .rate = 1, .window = 1}, 10);
  for (int i = 0; i < 9; ++i) automatic.observe(9);
  EXPECT_EQ(automatic.value(), 40);
}

TEST(Balance, WithAnIncrementItIsThePapersAdaptiveT) {
  Balance b({.kind = BalanceKind::kSteps, .target = 1, .window = 1, .high = 40, .increment = 5}, 10);
  EXPECT_FALSE(b.observe(0.9));
  EXPECT_FALSE(b.observe(-9)) << "never fewer";
  for (int i = 0; i < 9; ++i) b.observe(1.1);
  EXPECT_EQ(b.value(), 40);
}

TEST(Balance, AnIncrementIsTakenOffAWeight) {
  Balance b({.kind = BalanceKind::kLambda, .target = 1, .window = 1, .low = 0.25, .increment = 0.25}, 1);
  EXPECT_FALSE(b.observe(0.9));
  EXPECT_TRUE(b.observe(1.1));
  EXPECT_EQ(b.value(), 0.75);
  EXPECT_FALSE(b.observe(-9)) << "never more";
  for (int i = 0; i < 9; ++i) b.observe(1.1);
  EXPECT_EQ(b.value(), 0.25);
}

TEST(Balance, FindsTheValueThatClosesTheGap) {
  // A sampler whose gap falls with the logarithm of its step size; at 0.3 it is 0.
  Balance b({.kind = BalanceKind::kStepSize, .window = 4}, 0.05);
  for (int i = 0; i < 2000; ++i) b.observe(-5 * std::log(b.value() / 0.3));
  EXPECT_NEAR(b.value(), 0.3, 1e-3);
}

TEST(Balance, ContinuesFromItsState) {
  const BalanceOptions o{.kind = BalanceKind::kStepSize, .window = 3};
  Balance a(o, 0.05), b(o, 0.05);
  for (int i = 0; i < 4; ++i) a.observe(0.3 * i);
  b.restore(a.state());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(a.observe(1 - i), b.observe(1 - i));
  EXPECT_EQ(a.value(), b.value());
}

TEST(Balance, RefusesLimitsThatDoNotEncloseTheStart) {
  testing::expect_error(
      core::ExitCode::kUsage, [] { Balance({.kind = BalanceKind::kStepSize, .high = 0.01}, 0.05); },
      "balance.high");
}

}  // namespace
}  // namespace ebclr::ebm
