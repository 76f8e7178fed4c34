#include "fid/frechet.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "golden.h"

namespace ebclr::fid {
namespace {

Gaussian gaussian_of(const torch::Tensor& x, int64_t batch = 1 << 20) {
  Moments m;
  for (int64_t i = 0; i < x.size(0); i += batch) m.add(x.narrow(0, i, std::min(batch, x.size(0) - i)));
  return m.gaussian();
}

double distance(const Gaussian& a, const Gaussian& b) {
  return FrechetReference(a).distance(b);
}

// Features [n, d] in double, correlated, from a stream of its own.
torch::Tensor features(int64_t n, int64_t d, uint64_t seed) {
  auto x = torch::empty({n, d}), mix = torch::empty({d, d});
  core::fill_normal(seed, 0, {x.data_ptr<float>(), static_cast<size_t>(x.numel())});
  core::fill_normal(seed + 1000, 0, {mix.data_ptr<float>(), static_cast<size_t>(mix.numel())});
  return x.to(torch::kFloat64).mm(mix.to(torch::kFloat64)) / std::sqrt(static_cast<double>(d)) +
         static_cast<double>(seed % 7);
}

TEST(Frechet, Golden) {
  std::ifstream in(std::string(EBCLR_GOLDEN_DIR) + "/manifest.json");
  const auto manifest = nlohmann::json::parse(in);
  const double want = manifest["cases"]["frechet"]["distance"].get<double>();
  const auto a = gaussian_of(testing::golden("frechet.a")), b = gaussian_of(testing::golden("frechet.b"));
  EXPECT_NEAR(distance(a, b), want, 1e-6 * want);
  EXPECT_NEAR(distance(b, a), want, 1e-6 * want);
}

TEST(Frechet, BatchesGiveWhatOnePassGives) {
  const auto x = features(301, 12, 3);
  const auto whole = gaussian_of(x);
  EXPECT_LT(testing::relative_error(whole.mean, x.mean(0)), 1e-13);
  EXPECT_LT(testing::relative_error(whole.covariance, torch::cov(x.t())), 1e-12);
  for (const int64_t batch : {1, 7, 100, 300}) {
    const auto parts = gaussian_of(x, batch);
    EXPECT_EQ(parts.count, 301);
    EXPECT_LT(testing::relative_error(parts.mean, whole.mean), 1e-13) << batch;
    EXPECT_LT(testing::relative_error(parts.covariance, whole.covariance), 1e-12) << batch;
  }
}

TEST(Frechet, DiagonalGaussiansHaveAClosedForm) {
  const auto mean1 = torch::tensor({0.0, 1.0, -2.0}, torch::kFloat64),
             mean2 = torch::tensor({1.0, 1.0, 0.5}, torch::kFloat64);
  const auto var1 = torch::tensor({4.0, 0.25, 9.0}, torch::kFloat64),
             var2 = torch::tensor({1.0, 2.0, 0.0}, torch::kFloat64);
  const double want =
      ((mean1 - mean2).square().sum() + (var1.sqrt() - var2.sqrt()).square().sum()).item<double>();
  EXPECT_NEAR(distance({mean1, var1.diag(), 9}, {mean2, var2.diag(), 9}), want, 1e-12);
  // The same in rotated axes.
  const auto q = std::get<0>(torch::linalg_qr(features(3, 3, 5)));
  const auto turn = [&](const torch::Tensor& m, const torch::Tensor& v) {
    return Gaussian{q.mv(m), q.mm(v.diag()).mm(q.t()), 9};
  };
  EXPECT_NEAR(distance(turn(mean1, var1), turn(mean2, var2)), want, 1e-6);
}

TEST(Frechet, GaussiansThatDoNotCommute) {
  // In two dimensions tr sqrt(M) = sqrt(tr M + 2 sqrt(det M)), here of M = S1 S2.
  const auto s1 = torch::tensor({{2.0, 0.9}, {0.9, 1.0}}, torch::kFloat64),
             s2 = torch::tensor({{1.0, -0.6}, {-0.6, 3.0}}, torch::kFloat64);
  const auto product = s1.mm(s2);
  const double root =
      std::sqrt(product.trace().item<double>() + 2 * std::sqrt(torch::linalg_det(product).item<double>()));
  const double want = (s1.trace() + s2.trace()).item<double>() - 2 * root;
  const auto zero = torch::zeros({2}, torch::kFloat64);
  EXPECT_NEAR(distance({zero, s1, 9}, {zero, s2, 9}), want, 1e-12);
}

TEST(Frechet, EqualSetsAreAtZero) {
  for (const int64_t n : {400, 10}) {  // more and fewer than dimensions
    const auto g = gaussian_of(features(n, 32, 9));
    const double scale = g.covariance.trace().item<double>();
    EXPECT_GE(distance(g, g), 0);
    EXPECT_LT(distance(g, g), 1e-9 * scale) << n;
  }
}

TEST(Frechet, FewerFeaturesThanDimensions) {
  const auto x = features(11, 40, 1), y = features(17, 40, 2);
  const auto a = gaussian_of(x), b = gaussian_of(y);
  EXPECT_EQ(FrechetReference(a).rank(), 10);
  EXPECT_EQ(FrechetReference(b).rank(), 16);
  // tr (S1 S2)^1/2 is the nuclear norm of the product of the centred features.
  const auto xc = x - x.mean(0), yc = y - y.mean(0);
  const double root = torch::linalg_svdvals(xc.mm(yc.t())).sum().item<double>() / std::sqrt(10.0 * 16.0);
  const double want = (x.mean(0) - y.mean(0)).square().sum().item<double>() +
                      xc.square().sum().item<double>() / 10 + yc.square().sum().item<double>() / 16 -
                      2 * root;
  EXPECT_NEAR(distance(a, b), want, 1e-8 * want);
  EXPECT_NEAR(distance(b, a), want, 1e-8 * want);
}

TEST(Frechet, ACommonShiftChangesNothing) {
  const auto x = features(200, 8, 1), y = features(150, 8, 2);
  const double want = distance(gaussian_of(x, 32), gaussian_of(y, 32));
  EXPECT_NEAR(distance(gaussian_of(x + 1e6, 32), gaussian_of(y + 1e6, 32)), want, 1e-6 * want);
  // A shift of one side is its squared length.
  const auto g = gaussian_of(x);
  EXPECT_NEAR(distance(g, gaussian_of(x + 0.5)), 8 * 0.25, 1e-9);
}

TEST(Frechet, ConstantFeatures) {
  const auto point = gaussian_of(torch::ones({5, 3}));
  EXPECT_EQ(FrechetReference(point).rank(), 0);
  const auto x = features(100, 3, 4);
  const auto g = gaussian_of(x);
  const double want = ((g.mean - 1).square().sum() + g.covariance.trace()).item<double>();
  EXPECT_NEAR(distance(point, g), want, 1e-12 * want);
  EXPECT_NEAR(distance(g, point), want, 1e-12 * want);
}

TEST(Frechet, RefusesWhatMakesNoSense) {
  Moments m;
  m.add(torch::ones({1, 3}));
  using testing::expect_error;
  expect_error(
      core::ExitCode::kUsage, [&] { m.gaussian(); }, "1 images");
  expect_error(
      core::ExitCode::kUsage,
      [&] {
        m.add(torch::ones({2, 4}));
      },
      "size 4 after", "size 3");
  expect_error(
      core::ExitCode::kUsage, [&] { m.add(torch::ones({4})); }, "[N, D]");
  expect_error(
      core::ExitCode::kRunFailed,
      [&] {
        m.add(torch::full({1, 3}, NAN));
      },
      "not finite");
  EXPECT_EQ(m.count(), 1);
  expect_error(
      core::ExitCode::kUsage,
      [&] { distance(gaussian_of(features(9, 3, 1)), gaussian_of(features(9, 4, 1))); }, "size 4");
}

}  // namespace
}  // namespace ebclr::fid
