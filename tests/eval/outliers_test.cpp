#include "eval/outliers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "expect_error.h"
#include "golden.h"

namespace ebclr::eval {
namespace {

torch::Tensor unit(const torch::Tensor& x) {
  return x / x.norm(2, 1, true);
}

TEST(FeatureDistances, NeighbourIsTheKthOfASort) {
  torch::manual_seed(1);
  const auto train = torch::randn({50, 6}), queries = torch::randn({7, 6});
  const FeatureDistances d(train, 3);
  const auto all = torch::cdist(unit(queries.to(torch::kDouble)), unit(train.to(torch::kDouble)));
  EXPECT_LT(testing::relative_error(d.neighbour(queries), std::get<0>(all.sort(1)).select(1, 2)), 1e-5);
  EXPECT_LT(testing::relative_error(d.neighbour(queries * 5), d.neighbour(queries)), 1e-5)
      << "length says nothing";
}

TEST(FeatureDistances, TrainingImagesAreNotTheirOwnNeighbours) {
  torch::manual_seed(2);
  const auto train = torch::randn({30, 4});
  const FeatureDistances d(train, 1);
  EXPECT_LT(d.neighbour(train).max().item<double>(), 1e-6);
  EXPECT_GT(d.neighbour(train, true).min().item<double>(), 1e-3);
}

TEST(FeatureDistances, MahalanobisIsTheDefinition) {
  torch::manual_seed(3);
  const auto train = torch::randn({400, 5}) * torch::tensor({3.0f, 1.0f, 0.5f, 1.0f, 2.0f}) + 0.7;
  const auto queries = torch::randn({9, 5});
  const auto x = unit(train.to(torch::kDouble)), q = unit(queries.to(torch::kDouble));
  const auto centred = x - x.mean(0);
  const auto covariance = centred.t().matmul(centred) / 399.0;
  const auto away = q - x.mean(0);
  const auto want = away.matmul(torch::linalg_inv(covariance)).mul(away).sum(1).sqrt();
  EXPECT_LT(testing::relative_error(FeatureDistances(train).mahalanobis(queries), want), 5e-3);
}

TEST(FeatureDistances, DeadFeaturesDoNotMakeEverythingInfinite) {
  auto train = torch::randn({20, 40});
  train.narrow(1, 10, 30).zero_();
  const auto m = FeatureDistances(train).mahalanobis(train);
  EXPECT_TRUE(m.isfinite().all().item<bool>());
  testing::expect_error(
      core::ExitCode::kUsage,
      [] {
        FeatureDistances(torch::zeros({1, 4}));
      },
      "two training images");
}

TEST(StandardScores, ArePlacesAmongTrainingScores) {
  const auto training = torch::tensor({1.0, 2.0, 3.0, 4.0, 5.0});
  const auto s = standard_scores(torch::tensor({3.0, 4.4826}), training);
  EXPECT_NEAR(s[0].item<double>(), 0, 1e-12);
  EXPECT_NEAR(s[1].item<double>(), 1, 1e-6);
}

TEST(Unusualness, IsADistanceFromTheMiddleOnEitherSide) {
  const auto training = torch::tensor({1.0, 2.0, 3.0, 4.0, 5.0}, torch::kFloat64);
  const double s = 1.4826;  // a standard score of 1
  const auto u = unusualness({{torch::tensor({3.0, 3.0 + 3 * s, 3.0 - 3 * s}, torch::kFloat64), training},
                              {torch::tensor({3.0, 3.0 - 4 * s, 3.0}, torch::kFloat64), training}});
  EXPECT_NEAR(u[0].item<double>(), 0, 1e-12);
  EXPECT_NEAR(u[1].item<double>(), 5, 1e-12);
  EXPECT_NEAR(u[2].item<double>(), 3, 1e-12);
}

}  // namespace
}  // namespace ebclr::eval
