#include "methods/losses.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "golden.h"

namespace ebclr::methods {
namespace {
using testing::golden;
using testing::golden_double;
using testing::relative_error;

TEST(Losses, GoldenSimclr) {
  const auto z1 = golden_double("simclr_loss.z1").requires_grad_(),
             z2 = golden_double("simclr_loss.z2").requires_grad_();
  const auto loss = nt_xent(z1, z2, 0.1);
  EXPECT_LT(relative_error(loss, golden("simclr_loss.loss")), 1e-6);
  loss.backward();
  EXPECT_LT(relative_error(z1.grad(), golden("simclr_loss.grad_z1")), 1e-6);
  EXPECT_LT(relative_error(z2.grad(), golden("simclr_loss.grad_z2")), 1e-6);
}

TEST(Losses, GoldenMoco) {
  const auto query = golden_double("moco_loss.query").requires_grad_(),
             key = golden_double("moco_loss.key").requires_grad_();
  const auto loss = moco_loss(query, key, golden_double("moco_loss.queue"), 0.2);
  EXPECT_LT(relative_error(loss, golden("moco_loss.loss")), 1e-6);
  loss.backward();
  EXPECT_LT(relative_error(query.grad(), golden("moco_loss.grad_query")), 1e-6);
  EXPECT_FALSE(key.grad().defined()) << "no gradient reaches the keys";
}

TEST(Losses, GoldenSimsiam) {
  const auto p1 = golden_double("simsiam_loss.p1").requires_grad_(),
             p2 = golden_double("simsiam_loss.p2").requires_grad_();
  const auto loss = simsiam_loss(p1, p2, golden_double("simsiam_loss.z1"), golden_double("simsiam_loss.z2"));
  EXPECT_LT(relative_error(loss, golden("simsiam_loss.loss")), 1e-6);
  loss.backward();
  EXPECT_LT(relative_error(p1.grad(), golden("simsiam_loss.grad_p1")), 1e-6);
  EXPECT_LT(relative_error(p2.grad(), golden("simsiam_loss.grad_p2")), 1e-6);
}

TEST(Losses, GoldenByol) {
  const auto p1 = golden_double("byol_loss.p1").requires_grad_(),
             p2 = golden_double("byol_loss.p2").requires_grad_();
  const auto t1 = golden_double("byol_loss.target1").requires_grad_(),
             t2 = golden_double("byol_loss.target2").requires_grad_();
  const auto loss = byol_loss(p1, p2, t1, t2);
  EXPECT_LT(relative_error(loss, golden("byol_loss.loss")), 1e-6);
  loss.backward();
  EXPECT_LT(relative_error(p1.grad(), golden("byol_loss.grad_p1")), 1e-6);
  EXPECT_LT(relative_error(p2.grad(), golden("byol_loss.grad_p2")), 1e-6);
  EXPECT_FALSE(t1.grad().defined() || t2.grad().defined()) << "no gradient reaches the target";
}

TEST(Losses, JointTermAgainstPlainDoubles) {
  torch::manual_seed(3);
  const auto data = 4 * torch::randn({5, 3}, torch::kFloat64),
             samples = torch::randn({7, 3}, torch::kFloat64);
  // E = -log sum_y exp(logit), without torch.
  const auto moments = [](const torch::Tensor& logits) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < logits.size(0); ++i) {
      double z = 0;
      for (int64_t y = 0; y < logits.size(1); ++y) z += std::exp(logits[i][y].item<double>());
      sum -= std::log(z);
      squares += std::log(z) * std::log(z);
    }
    const auto n = static_cast<double>(logits.size(0));
    return std::pair{sum / n, squares / n};
  };
  const auto [e_data, s_data] = moments(data);
  const auto [e_samples, s_samples] = moments(samples);
  const auto in_float = data.to(torch::kFloat32).requires_grad_();
  const auto term = joint_term(in_float, samples.to(torch::kFloat32), 0.25);
  EXPECT_NEAR(term.energy_data.item<double>(), e_data, 1e-5);
  EXPECT_NEAR(term.energy_samples.item<double>(), e_samples, 1e-5);
  EXPECT_NEAR(term.loss.item<double>(), e_data - e_samples + 0.25 * (s_data + s_samples), 1e-4);
  // dE/dlogit_y = -p(y): pulling the energy of data down raises their logits in proportion.
  joint_term(in_float, samples.to(torch::kFloat32), 0).loss.backward();
  EXPECT_LT(relative_error(in_float.grad(), -data.softmax(1) / 5), 1e-5);
}

}  // namespace
}  // namespace ebclr::methods
