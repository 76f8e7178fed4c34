#include "eval/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "helpers.h"

namespace ebclr::eval {
namespace {

using ::testing::HasSubstr;

TEST(Wilson, KnownValues) {
  // R: prop.test(x, n, correct = FALSE)$conf.int
  Interval i = wilson(10, 20);
  EXPECT_NEAR(i.low, 0.2992980, 1e-6);
  EXPECT_NEAR(i.high, 0.7007020, 1e-6);
  i = wilson(0, 10);
  EXPECT_NEAR(i.low, 0.0, 1e-12);
  EXPECT_NEAR(i.high, 0.2775328, 1e-6);
  i = wilson(9130, 10000);
  EXPECT_NEAR(i.low, 0.9073130, 1e-5);
  EXPECT_NEAR(i.high, 0.9183700, 1e-5);
  EXPECT_EQ(wilson(0, 0).high, 1);
}

TEST(Score, CountsByHand) {
  const auto truth = torch::tensor({0, 0, 0, 1, 1, 3}, torch::kInt64);
  const auto predicted = torch::tensor({0, 0, 1, 1, 3, 3}, torch::kInt64);
  const Score s = score(truth, predicted, 4);
  EXPECT_EQ(s.correct, 4);
  EXPECT_EQ(s.total, 6);
  EXPECT_DOUBLE_EQ(s.accuracy, 4.0 / 6);
  EXPECT_DOUBLE_EQ(s.per_class[0], 2.0 / 3);
  EXPECT_DOUBLE_EQ(s.per_class[1], 0.5);
  EXPECT_TRUE(std::isnan(s.per_class[2]));
  EXPECT_DOUBLE_EQ(s.per_class[3], 1);
  EXPECT_EQ(s.confusion[0][1].item<int64_t>(), 1);
  EXPECT_EQ(s.confusion[1][3].item<int64_t>(), 1);
  EXPECT_EQ(s.confusion.sum().item<int64_t>(), 6);
}

TEST(Auroc, HandMadeCases) {
  const auto truth = torch::tensor({0, 0, 1, 1}, torch::kBool);
  EXPECT_DOUBLE_EQ(auroc(torch::tensor({0.1, 0.2, 0.8, 0.9}), truth), 1);
  EXPECT_DOUBLE_EQ(auroc(torch::tensor({0.9, 0.8, 0.2, 0.1}), truth), 0);
  EXPECT_DOUBLE_EQ(auroc(torch::tensor({0.1, 0.4, 0.35, 0.8}), truth), 0.75);
  EXPECT_DOUBLE_EQ(auroc(torch::tensor({1.0, 1.0, 1.0, 1.0}), truth), 0.5);
  EXPECT_THAT(error_of([&] {
                auroc(torch::ones({2}), torch::tensor({1, 1}, torch::kBool));
              }),
              HasSubstr("2 positives and 0 negatives"));
}

TEST(Spread, MeanAndDeviation) {
  const Spread s = spread({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_NEAR(s.deviation, 1.2909944487, 1e-9);
  EXPECT_EQ(spread({5}).deviation, 0);
}

TEST(Checks, SayWhatIsWrong) {
  Labelled part{torch::randn({4, 3}), torch::tensor({0, 1, 0, 1}, torch::kInt64)};
  check_labelled(part, 2, "train");
  auto broken = part;
  broken.features = part.features.clone();
  broken.features[2][1] = std::nanf("");
  EXPECT_THAT(error_of([&] { check_labelled(broken, 2, "test"); }),
              HasSubstr("features of 1 of 4 test images are NaN or infinite (the first is image 2)"));
  broken = part;
  broken.labels = torch::tensor({0, -1, -1, 1}, torch::kInt64);
  EXPECT_THAT(error_of([&] { check_labelled(broken, 2, "train"); }),
              HasSubstr("2 of 4 train images have no label"));
  broken.labels = torch::tensor({0, 1, 2, 1}, torch::kInt64);
  EXPECT_THAT(error_of([&] { check_labelled(broken, 2, "train"); }), HasSubstr("label 2 in the train part"));
  broken.labels = torch::tensor({1, 1, 1, 1}, torch::kInt64);
  EXPECT_THAT(error_of([&] { check_classes(broken); }),
              HasSubstr("all 4 train images have the same label (1)"));
  EXPECT_THAT(error_of([&] { check_labelled({}, 2, "test"); }), HasSubstr("test part has no features"));
}

}  // namespace
}  // namespace ebclr::eval
