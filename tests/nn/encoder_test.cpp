#include "nn/encoder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "expect_error.h"
#include "golden.h"

namespace ebclr::nn {
namespace {
using testing::golden;
using testing::relative_error;

TEST(Encoder, GoldenWidth8Colour) {
  Encoder encoder({.width = 8}, 0);
  Head head({.in = 64, .hidden = 64, .out = 16}, 0);
  testing::fill_golden(head, testing::fill_golden(encoder, 0));
  const auto features = encoder.forward(testing::golden_float("net_w8_rgb32.input"));
  EXPECT_LT(relative_error(features, golden("net_w8_rgb32.features")), 1e-5);
  EXPECT_LT(relative_error(head.forward(features), golden("net_w8_rgb32.projection")), 1e-5);
}

TEST(Encoder, GoldenWidth64Grey) {
  Encoder encoder({.channels = 1}, 0);
  Head head({.in = 512, .hidden = 512, .out = 128}, 0);
  testing::fill_golden(head, testing::fill_golden(encoder, 0));
  const auto features = encoder.forward(testing::golden_float("net_w64_gray28.input"));
  EXPECT_LT(relative_error(features, golden("net_w64_gray28.features")), 1e-5);
  EXPECT_LT(relative_error(head.forward(features), golden("net_w64_gray28.projection")), 1e-5);
}

TEST(Encoder, NamesAreThoseOfTheReleasedCode) {
  Encoder encoder({.width = 8}, 0);
  const auto names = encoder.named_parameters().keys();
  EXPECT_EQ(names.front(), "conv1.weight");
  EXPECT_EQ(names.at(2), "layer1.0.conv1.weight");
  EXPECT_NE(std::find(names.begin(), names.end(), "layer2.0.shortcut.0.weight"), names.end());
  EXPECT_EQ(names.size(), 40u);  // 17 + 3 convolutions, each with a bias
  Encoder normed({.width = 8, .norm = Norm::kBatch}, 0);
  const auto all = normed.named_parameters().keys();
  EXPECT_EQ(std::count(all.begin(), all.end(), "conv1.bias"), 0);
  EXPECT_EQ(std::count(all.begin(), all.end(), "layer2.0.shortcut.1.weight"), 1);
  EXPECT_EQ(Head({}, 0).named_parameters().keys().front(), "fc1.weight");
}

TEST(Encoder, DepthsAndSizes) {
  torch::NoGradGuard guard;
  for (const auto& [arch, dim, convs] :
       {std::tuple{"resnet18", 64, 20}, {"resnet34", 64, 36}, {"resnet50", 256, 53}}) {
    Encoder encoder({.arch = arch, .width = 8, .channels = 1}, 0);
    EXPECT_EQ(encoder.feature_dim(), dim);
    EXPECT_EQ(static_cast<int>(encoder.parameters().size()), 2 * convs) << arch;
    for (int64_t size : {16, 28, 33})
      EXPECT_EQ(encoder.forward(torch::zeros({2, 1, size, size})).sizes(), (std::vector<int64_t>{2, dim}));
  }
}

TEST(Encoder, InitialisationIsSeeded) {
  for (auto init : {Init::kTorch, Init::kResidual}) {
    Encoder a({.width = 8, .init = init}, 1), b({.width = 8, .init = init}, 1),
        c({.width = 8, .init = init}, 2);
    EXPECT_TRUE(torch::equal(a.parameters().at(5 * 2), b.parameters().at(5 * 2)));
    EXPECT_FALSE(torch::equal(a.parameters().at(5 * 2), c.parameters().at(5 * 2)));
  }
}

TEST(Encoder, ResidualInitScalesEachBlocksLastConvolution) {
  Encoder encoder({.width = 16, .init = Init::kResidual}, 0);
  for (const auto& stage : encoder.stages())
    for (const auto& block : stage) {
      const double fan_in = static_cast<double>(block->conv2->weight[0].numel());
      const double kaiming = std::sqrt(2 / (1.04 * fan_in));
      EXPECT_NEAR(block->conv2->weight.std().item<double>() / (0.35 * kaiming), 1, 0.05);
      EXPECT_EQ(block->conv2->bias.abs().max().item<double>(), 0);
    }
}

TEST(Encoder, TorchInitHasTorchsSpread) {
  Encoder encoder({.width = 16}, 0);
  const auto w = encoder.stages()[1][1]->conv1->weight;
  const double bound = 1 / std::sqrt(static_cast<double>(w[0].numel()));
  EXPECT_LE(w.abs().max().item<double>(), bound);
  EXPECT_NEAR(w.std().item<double>(), bound / std::sqrt(3.0), 0.03 * bound);
}

TEST(Encoder, CutsComposeToTheWhole) {
  Encoder encoder({.width = 8}, 3);
  const auto x = torch::randn({2, 3, 20, 20});
  const auto want = encoder.forward_reference(x);
  for (int cut : {0, 1})
    EXPECT_TRUE(torch::equal(encoder.forward_from_cut(encoder.forward_to_cut(x, cut), cut), want));
}

// torchvision.models.resnet18().state_dict(): 122 entries, two of them of the classifier that we leave out.
TEST(Stem, ImagenetHasTorchvisionsNamesAndShapes) {
  Encoder encoder({.norm = Norm::kBatch, .activation = Activation::kRelu, .stem = Stem::kImagenet}, 0);
  const auto state = state_of(encoder, "");
  EXPECT_EQ(state.size(), 120u);
  const auto shape = [&](const std::string& name) {
    for (const auto& [n, t] : state)
      if (n == name) return t.sizes().vec();
    return std::vector<int64_t>{-1};
  };
  EXPECT_EQ(shape("conv1.weight"), (std::vector<int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(shape("bn1.running_var"), (std::vector<int64_t>{64}));
  EXPECT_EQ(shape("layer2.0.downsample.0.weight"), (std::vector<int64_t>{128, 64, 1, 1}));
  EXPECT_EQ(shape("layer2.0.downsample.1.num_batches_tracked"), (std::vector<int64_t>{}));
  EXPECT_EQ(shape("layer4.1.bn2.bias"), (std::vector<int64_t>{512}));
  EXPECT_EQ(shape("layer2.0.shortcut.0.weight"), (std::vector<int64_t>{-1}));
  Encoder deep({.arch = "resnet50", .norm = Norm::kBatch, .stem = Stem::kImagenet}, 0);
  EXPECT_EQ(state_of(deep, "").size(), 318u);  // torchvision's resnet50 has 320
}

TEST(Stem, ImagenetComputesWhatItsLayersSay) {
  torch::NoGradGuard guard;
  Encoder encoder({.width = 8, .stem = Stem::kImagenet}, 4);
  const auto x = torch::randn({2, 3, 30, 21});
  auto h = torch::conv2d(x, encoder.conv1->weight, encoder.conv1->bias, 2, 3);
  h = torch::max_pool2d(torch::leaky_relu(h, 0.2), 3, 2, 1);
  EXPECT_EQ(h.sizes(), (std::vector<int64_t>{2, 8, 8, 6}));
  EXPECT_TRUE(torch::equal(encoder.forward_to_cut(x, 0), h));
  EXPECT_TRUE(torch::equal(encoder.forward_from_cut(h, 0), encoder.forward(x)));
}

TEST(Stem, PatchTouchesEachPixelOnce) {
  Encoder encoder({.width = 8, .stem = Stem::kPatch}, 4);
  auto x = torch::randn({1, 3, 32, 20}).requires_grad_();
  const auto h = encoder.forward_to_cut(x, 0);
  EXPECT_EQ(h.sizes(), (std::vector<int64_t>{1, 8, 8, 5}));
  // The gradient of one place of the stem's output reaches its own 4 x 4 pixels and nothing else.
  const auto g = torch::autograd::grad({h[0].select(1, 2).select(1, 3).sum()}, {x})[0].abs().sum(1)[0];
  EXPECT_GT(g.slice(0, 8, 12).slice(1, 12, 16).min().item<double>(), 0);
  g.slice(0, 8, 12).slice(1, 12, 16).zero_();
  EXPECT_EQ(g.sum().item<double>(), 0);
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        encoder.forward(torch::zeros({1, 3, 30, 32}));
      },
      "32x30", "multiple of 4");
}

TEST(Stem, AllTakeTheSmallestAndLargeImages) {
  torch::NoGradGuard guard;
  for (auto stem : {Stem::kCifar, Stem::kImagenet, Stem::kPatch}) {
    const int64_t stride = stem == Stem::kCifar ? 1 : 4;
    EXPECT_EQ(Encoder({.width = 8, .norm = Norm::kSws, .stem = stem}, 0)
                  .forward_to_cut(torch::zeros({1, 3, 32, 32}), 0)
                  .size(2),
              32 / stride);
    Encoder encoder({.width = 8, .stem = stem}, 0);
    for (int64_t size : {16, 64, 128}) {
      EXPECT_EQ(encoder.forward(torch::randn({1, 3, size, size})).sizes(), (std::vector<int64_t>{1, 64}));
      EXPECT_EQ(encoder.forward_to_cut(torch::zeros({1, 3, size, size}), 0).size(2), size / stride);
    }
  }
  testing::expect_error(
      core::ExitCode::kUsage, [] { parse_stem("vit"); }, "vit", "imagenet");
}

TEST(Encoder, RefusesBadOptionsAndImages) {
  using core::ExitCode;
  testing::expect_error(
      ExitCode::kUsage, [] { Encoder({.arch = "resnet19"}, 0); }, "resnet19", "resnet18");
  testing::expect_error(
      ExitCode::kUsage, [] { Encoder({.channels = 4}, 0); }, "1 or 3");
  testing::expect_error(
      ExitCode::kUsage,
      [] {
        Encoder({.width = 8}, 0).forward(torch::zeros({1, 3, 12, 12}));
      },
      "12x12", "16x16");
}

TEST(FreezeParameters, OnlyInputGradientsInside) {
  Encoder encoder({.width = 8}, 0);
  auto x = torch::randn({1, 3, 16, 16}).requires_grad_();
  {
    FreezeParameters freeze({&encoder});
    for (const auto& p : encoder.parameters()) EXPECT_FALSE(p.requires_grad());
    const auto g = torch::autograd::grad({encoder.forward(x).sum()}, {x})[0];
    EXPECT_GT(g.abs().max().item<double>(), 0);
  }
  for (const auto& p : encoder.parameters()) {
    EXPECT_TRUE(p.requires_grad());
    EXPECT_FALSE(p.grad().defined());
  }
}

TEST(CopyState, TakesBatchNormStatisticsAlong) {
  Encoder a({.width = 8, .norm = Norm::kBatch}, 1), b({.width = 8, .norm = Norm::kBatch}, 2);
  a.forward(torch::randn({4, 3, 16, 16}));
  copy_state(a, b);
  a.eval();
  b.eval();
  const auto x = torch::randn({2, 3, 16, 16});
  EXPECT_TRUE(torch::equal(a.forward(x), b.forward(x)));
}

}  // namespace
}  // namespace ebclr::nn
