#include "nn/standardised.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "golden.h"

namespace ebclr::nn {
namespace {
using testing::relative_error;
using torch::Tensor;

RawConv random_conv(torch::Dtype type, bool skip) {
  torch::manual_seed(3);
  RawConv raw{torch::randn({5, 4, 3, 3}, torch::kDouble) + 0.3,
              torch::randn({5}, torch::kDouble),
              torch::rand({5}, torch::kDouble) + 0.5,
              {}};
  if (skip) raw.skip = torch::full({1}, 0.7, torch::kDouble);
  for (Tensor* t : {&raw.weight, &raw.bias, &raw.gain, &raw.skip})
    if (t->defined()) *t = t->to(type).detach().requires_grad_();
  return raw;
}

// The definition, written with torch's own operations and left to autograd.
PlainConv by_definition(const RawConv& raw, double scale) {
  const auto rows = raw.weight.flatten(1);
  const auto fan_in = static_cast<double>(rows.size(1));
  const auto deviation = (rows.var(1, /*unbiased=*/false, true) * fan_in + kStandardisedEpsilon).sqrt();
  auto weight =
      ((rows - rows.mean(1, true)) / deviation * raw.gain.unsqueeze(1) * scale).view(raw.weight.sizes());
  return {raw.skip.defined() ? weight * raw.skip : weight,
          raw.skip.defined() ? raw.bias * raw.skip : raw.bias};
}

std::vector<Tensor> gradients(const RawConv& raw, const PlainConv& plain) {
  torch::manual_seed(4);
  const auto gw = torch::randn(plain.weight.sizes(), torch::kDouble).to(plain.weight.scalar_type());
  const auto gb = torch::randn(plain.bias.sizes(), torch::kDouble).to(plain.bias.scalar_type());
  std::vector<Tensor> inputs{raw.weight, raw.bias, raw.gain};
  if (raw.skip.defined()) inputs.push_back(raw.skip);
  return torch::autograd::grad({(plain.weight * gw).sum() + (plain.bias * gb).sum()}, inputs);
}

TEST(Standardised, GainsOfTheActivations) {
  EXPECT_NEAR(activation_gain(Activation::kLeakyRelu), 1.5465, 5e-5);
  EXPECT_NEAR(activation_gain(Activation::kRelu), 1.7129, 5e-5);
}

TEST(Standardised, ValuesAndGradientsAreThoseOfTheDefinitionInDouble) {
  for (const bool skip : {false, true}) {
    const auto golden = random_conv(torch::kDouble, skip);
    const auto want = by_definition(golden, 1.5465);
    const auto want_gradients = gradients(golden, want);
    for (const auto type : {torch::kDouble, torch::kFloat}) {
      const double tolerance = type == torch::kDouble ? 1e-12 : 1e-5;
      const auto raw = random_conv(type, skip);
      StandardisedConv conv(raw, 1.5465);
      const auto plain = conv.plain();
      EXPECT_LT(relative_error(plain.weight, want.weight), tolerance);
      EXPECT_LT(relative_error(plain.bias, want.bias), tolerance);
      const auto got = gradients(raw, plain);
      ASSERT_EQ(got.size(), want_gradients.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(relative_error(got[i], want_gradients[i]), tolerance) << "of input " << i;
    }
  }
}

TEST(Standardised, ComputedOncePerUpdateInTheSameMemory) {
  const auto raw = random_conv(torch::kFloat, true);
  StandardisedConv conv(raw, 1);
  const auto a = conv.plain(), b = conv.plain();
  EXPECT_EQ(a.weight.data_ptr(), b.weight.data_ptr());
  EXPECT_EQ(a.weight._version(), b.weight._version());
  const auto version = a.weight._version();
  {
    torch::NoGradGuard guard;
    raw.weight.mul_(2).add_(1);  // changes nothing but the epsilon's share
    raw.gain.mul_(3);
  }
  const auto before = a.weight.detach().clone();
  const auto c = conv.plain();
  EXPECT_EQ(c.weight.data_ptr(), a.weight.data_ptr());
  EXPECT_GT(c.weight._version(), version);
  EXPECT_LT(relative_error(c.weight, before * 3), 1e-4);
}

TEST(Standardised, FrozenWeightsHaveNoHistory) {
  auto raw = random_conv(torch::kFloat, false);
  StandardisedConv conv(raw, 1);
  EXPECT_TRUE(conv.plain().weight.requires_grad());
  for (Tensor* t : {&raw.weight, &raw.bias, &raw.gain}) t->requires_grad_(false);
  EXPECT_FALSE(conv.plain().weight.requires_grad());
}

TEST(Standardised, EncoderStartsAsItsShortcutsAndKeepsTheScaleOfSignals) {
  torch::NoGradGuard guard;
  Encoder still({.width = 16, .norm = Norm::kSws}, 0), busy({.width = 16, .norm = Norm::kSws, .skip = 1}, 0);
  const auto x = torch::randn({8, 3, 32, 32});
  for (auto& stage : still.stages())
    for (auto& block : stage) block->conv2->bias.fill_(9);  // skip is 0: nothing of the branch is seen
  Encoder untouched({.width = 16, .norm = Norm::kSws}, 0);
  EXPECT_TRUE(torch::equal(still.forward(x), untouched.forward(x)));
  // The stem's output before its activation has variance 1 for white input; so has that of a branch.
  const auto plain = busy.plain_convolutions();
  const auto h = torch::conv2d(x, plain[0].weight, plain[0].bias, 1, 1);
  EXPECT_NEAR(h.var().item<double>(), 1, 0.15);
  const auto a = torch::leaky_relu(torch::randn({8, 16, 32, 32}), kLeakySlope);
  const auto y = torch::conv2d(a, plain[1].weight, plain[1].bias);
  EXPECT_NEAR(y.var().item<double>(), 1, 0.15);
}

TEST(Standardised, FoldedEncodersComputeTheSame) {
  torch::NoGradGuard guard;
  for (const char* arch : {"resnet18", "resnet50"})
    for (const auto norm : {Norm::kNone, Norm::kBatch, Norm::kSws}) {
      Encoder encoder({.arch = arch, .width = 8, .norm = norm, .skip = 0.5}, 1);
      encoder.forward(torch::randn({4, 3, 16, 16}));  // BatchNorm's running statistics move
      encoder.eval();
      const auto plain = encoder.folded();
      EXPECT_EQ(plain->options().norm, Norm::kNone);
      const auto x = torch::randn({3, 3, 20, 20});
      EXPECT_LT(relative_error(plain->forward(x), encoder.forward(x)), 1e-5) << arch;
    }
}

TEST(Standardised, CutsComposeToTheWhole) {
  Encoder encoder({.width = 8, .norm = Norm::kSws, .skip = 0.3}, 3);
  const auto x = torch::randn({2, 3, 20, 20});
  const auto want = encoder.forward_reference(x);
  for (int cut : {0, 1})
    EXPECT_TRUE(torch::equal(encoder.forward_from_cut(encoder.forward_to_cut(x, cut), cut), want));
}

}  // namespace
}  // namespace ebclr::nn
