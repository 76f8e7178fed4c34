#include "train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ebclr::train {
namespace {

std::vector<methods::ParameterGroup> groups(torch::Tensor a, torch::Tensor b) {
  return {{{a}, false}, {{b}, true}};
}

void fake_gradients(torch::Tensor& a, torch::Tensor& b, int step) {
  a.mutable_grad() = torch::full_like(a, 0.1 * (step + 1));
  b.mutable_grad() = torch::full_like(b, -0.2 * (step + 1));
}

TEST(Optimizer, SavedStateContinuesExactly) {
  for (auto kind : {run::OptimizerKind::kAdam, run::OptimizerKind::kSgd}) {
    auto a = torch::ones({3}).requires_grad_(), b = torch::ones({2}).requires_grad_();
    const run::OptimizerOptions options{.kind = kind, .weight_decay = 0.01};
    Optimizer first(options, groups(a, b), 0.1);
    for (int i = 0; i < 3; ++i) {
      fake_gradients(a, b, i);
      first.step(0.1, 0.1);
    }
    core::SafeTensors saved;
    first.save(saved);
    for (auto& [name, t] : saved.tensors) t = t.clone();
    auto a2 = a.detach().clone().requires_grad_(), b2 = b.detach().clone().requires_grad_();
    Optimizer second(options, groups(a2, b2), 0.1);
    second.load(saved, "test");
    for (int i = 3; i < 6; ++i) {
      fake_gradients(a, b, i);
      fake_gradients(a2, b2, i);
      first.step(0.1, 0.1);
      second.step(0.1, 0.1);
    }
    EXPECT_TRUE(torch::equal(a, a2));
    EXPECT_TRUE(torch::equal(b, b2));
  }
}

TEST(Optimizer, FixedGroupsKeepTheirRate) {
  auto a = torch::zeros({1}).requires_grad_(), b = torch::zeros({1}).requires_grad_();
  Optimizer sgd({.kind = run::OptimizerKind::kSgd, .momentum = 0}, groups(a, b), 1);
  a.mutable_grad() = torch::ones({1});
  b.mutable_grad() = torch::ones({1});
  sgd.step(0.25, 1);
  EXPECT_EQ(a.item<float>(), -0.25f);
  EXPECT_EQ(b.item<float>(), -1.0f);
}

TEST(Optimizer, EveryUpdateShowsInTheVersionCounter) {
  for (auto kind : {run::OptimizerKind::kAdam, run::OptimizerKind::kSgd}) {
    auto a = torch::ones({3}).requires_grad_(), b = torch::ones({2}).requires_grad_();
    Optimizer optimizer({.kind = kind}, groups(a, b), 0.1);
    fake_gradients(a, b, 0);
    const auto before = a._version();
    optimizer.step(0.1, 0.1);
    EXPECT_GT(a._version(), before) << "caches of transformed weights depend on it";
  }
}

TEST(Optimizer, ClipsTheGlobalNorm) {
  auto a = torch::zeros({1}).requires_grad_(), b = torch::zeros({1}).requires_grad_();
  Optimizer sgd({.kind = run::OptimizerKind::kSgd, .clip_norm = 1}, groups(a, b), 1);
  a.mutable_grad() = torch::full({1}, 3.0);
  b.mutable_grad() = torch::full({1}, 4.0);
  EXPECT_FLOAT_EQ(sgd.gradient_norm(), 5);
  EXPECT_FLOAT_EQ(a.grad().item<float>(), 0.6f);
  EXPECT_FLOAT_EQ(b.grad().item<float>(), 0.8f);
}

TEST(Optimizer, LeavesGradientsAloneByDefault) {
  auto a = torch::zeros({1}).requires_grad_(), b = torch::zeros({1}).requires_grad_();
  Optimizer adam({}, groups(a, b), 1);
  a.mutable_grad() = torch::full({1}, 3e5);
  b.mutable_grad() = torch::full({1}, -4e5);
  EXPECT_FLOAT_EQ(adam.gradient_norm(), 5e5);
  EXPECT_EQ(a.grad().item<float>(), 3e5f);
  EXPECT_EQ(b.grad().item<float>(), -4e5f);
}

TEST(Schedule, WarmsUpAndFollowsTheCosine) {
  const run::OptimizerOptions constant{}, cosine{.schedule = run::ScheduleKind::kCosine, .warmup_epochs = 1};
  EXPECT_EQ(schedule_factor(constant, 17, 10, 5), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(cosine, 0, 10, 5), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(cosine, 9, 10, 5), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(cosine, 10, 10, 5), 1);
  EXPECT_NEAR(schedule_factor(cosine, 30, 10, 5), 0.5, 1e-12);
  EXPECT_LT(schedule_factor(cosine, 49, 10, 5), 0.01);
}

}  // namespace
}  // namespace ebclr::train
