#include "report/smooth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ebclr::report {
namespace {

using ::testing::ElementsAre;

TEST(Smooth, FewPointsStayAsTheyAre) {
  const auto s = smooth("a", {{1, 2, 3}, {5, NAN, 7}}, 10);
  EXPECT_THAT(s.x, ElementsAre(1, 2, 3));
  EXPECT_TRUE(std::isnan(s.y[1]));
  EXPECT_TRUE(s.low.empty());
  EXPECT_TRUE(s.markers);
}

TEST(Smooth, ManyPointsBecomeMeansWithinTheirRange) {
  run::MetricSeries many;
  for (int i = 0; i < 1000; ++i) {
    many.epoch.push_back(i);
    many.value.push_back(i == 503 ? 50 : i % 2);
  }
  const auto s = smooth("a", many, 100);
  ASSERT_EQ(s.x.size(), 100u);
  EXPECT_DOUBLE_EQ(s.x[0], 4.5);
  EXPECT_DOUBLE_EQ(s.y[0], 0.5);
  EXPECT_EQ(s.low[50], 0);
  EXPECT_EQ(s.high[50], 50) << "the band shows a spike that the mean hides";
}

TEST(Smooth, AGapStaysAGap) {
  run::MetricSeries many;
  for (int i = 0; i < 1000; ++i) {
    many.epoch.push_back(i);
    many.value.push_back(i == 500 ? NAN : 1);
  }
  const auto s = smooth("a", many, 100);
  EXPECT_EQ(std::count_if(s.y.begin(), s.y.end(), [](double v) { return std::isnan(v); }), 1);
  EXPECT_EQ(s.x.size(), s.y.size());
  EXPECT_EQ(s.low.size(), s.y.size());
}

}  // namespace
}  // namespace ebclr::report
