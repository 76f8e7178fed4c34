#include "eval/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "helpers.h"

namespace ebclr::eval {
namespace {

const std::vector<CurvePoint> kReference = {{0, 0, 0, 0.4},
                                            {10, 500, 2900, 0.70},
                                            {20, 1000, 5800, 0.80},
                                            {30, 1500, 8700, 0.79},
                                            {100, 5000, 29000, 0.90}};

TEST(Efficiency, CountsFromTheFirstCheckpointThatReachesTheTarget) {
  const Efficiency e = relative_efficiency(kReference, {{50, 400, 3000, 0.60}, {100, 800, 6000, 0.75}});
  EXPECT_DOUBLE_EQ(e.target, 0.75);
  ASSERT_TRUE(e.reached);
  EXPECT_DOUBLE_EQ(e.reached->epoch, 20);
  EXPECT_DOUBLE_EQ(*e.epochs, 0.2);
  EXPECT_DOUBLE_EQ(*e.seconds, 1000.0 / 800);  // fewer epochs, yet more seconds: both are told
  EXPECT_DOUBLE_EQ(*e.forward_units, 5800.0 / 6000);
}

TEST(Efficiency, FinalNotBestAccuracyIsTheTarget) {
  const Efficiency e = relative_efficiency(kReference, {{100, 1, 1, 0.65}, {60, 1, 1, 0.85}});
  EXPECT_DOUBLE_EQ(e.target, 0.65);
  EXPECT_DOUBLE_EQ(*e.epochs, 0.1);
}

TEST(Efficiency, NeverReached) {
  const Efficiency e = relative_efficiency(kReference, {{100, 800, 6000, 0.95}});
  EXPECT_DOUBLE_EQ(e.target, 0.95);
  EXPECT_FALSE(e.reached);
  EXPECT_FALSE(e.epochs);
  EXPECT_FALSE(e.seconds);
  EXPECT_FALSE(e.forward_units);
}

TEST(Efficiency, AgainstItselfAndWithMissingClocks) {
  EXPECT_DOUBLE_EQ(*relative_efficiency(kReference, kReference).epochs, 1);
  const Efficiency e = relative_efficiency(kReference, {{100, 0, 0, 0.75}});
  EXPECT_TRUE(e.epochs);
  EXPECT_FALSE(e.seconds);
  EXPECT_THAT(error_of([] { relative_efficiency({}, kReference); }), ::testing::HasSubstr("without points"));
}

}  // namespace
}  // namespace ebclr::eval
