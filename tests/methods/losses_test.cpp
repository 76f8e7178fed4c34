#include "methods/losses.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

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

}  // namespace
}  // namespace ebclr::methods
