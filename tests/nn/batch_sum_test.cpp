// A batch spread over processes (threads here) against the whole batch in one.

#include "nn/batch_sum.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nn/encoder.h"
#include "shared_batch.h"

namespace ebclr::nn {
namespace {

using torch::Tensor;

Networks make(const EncoderOptions& options, torch::Dtype type) {
  Networks net = make_networks(
      options,
      {.hidden = 12, .out = 6, .layers = 2, .hidden_norm = true, .output_norm = true, .output_affine = false},
      5);
  for (torch::nn::Module* m : {static_cast<torch::nn::Module*>(net.encoder.get()),
                               static_cast<torch::nn::Module*>(net.head.get())}) {
    m->to(type);
    torch::NoGradGuard no_grad;
    // Scales of both signs, so that nothing hides behind ones and zeros.
    double k = 0;
    for (auto& module : m->modules(false)) {
      if (auto* bn = module->as<torch::nn::BatchNorm2d>())
        bn->weight.add_(0.3 * std::sin(++k)), bn->bias.add_(0.1 * std::cos(k));
      if (auto* bn = module->as<torch::nn::BatchNorm1d>(); bn && bn->weight.defined()) bn->weight.mul_(-0.7);
    }
  }
  return net;
}

std::vector<Tensor> tensors_of(const Networks& net, bool gradients) {
  std::vector<Tensor> list;
  for (const torch::nn::Module* m : {static_cast<const torch::nn::Module*>(net.encoder.get()),
                                     static_cast<const torch::nn::Module*>(net.head.get())}) {
    for (const auto& t : gradients ? m->parameters() : m->buffers()) list.push_back(gradients ? t.grad() : t);
  }
  return list;
}

double distance(const Tensor& a, const Tensor& b) {
  return ((a - b).to(torch::kDouble).norm() / b.to(torch::kDouble).norm().clamp_min(1e-12)).item<double>();
}

class SharedBatches : public ::testing::TestWithParam<int> {};

TEST_P(SharedBatches, IsTheWholeBatch) {
  const int world = GetParam();
  torch::manual_seed(2);
  for (const auto type : {torch::kDouble, torch::kFloat}) {
    const double tolerance = type == torch::kDouble ? 1e-10 : 2e-3;
    const EncoderOptions options{.width = 4, .norm = Norm::kBatch};
    const Tensor images = torch::randn({7, 3, 16, 16}, type), along = torch::randn({7, 6}, type);
    const Networks whole = make(options, type);
    const Tensor x = images.clone().requires_grad_(true);
    const Tensor y = whole.head->forward(whole.encoder->forward(x));
    (y * along).sum().backward();

    std::vector<Networks> nets;
    std::vector<Tensor> inputs, outputs(static_cast<size_t>(world));
    for (int r = 0; r < world; ++r) {
      nets.push_back(make(options, type));
      // Uneven shares of 7 images.
      inputs.push_back(images.slice(0, 7 * r / world, 7 * (r + 1) / world).clone().requires_grad_(true));
    }
    const int sums = testing::run_ranks(world, [&](int r, const BatchSum& sum) {
      const auto i = static_cast<size_t>(r);
      share_batch(*nets[i].encoder, sum);
      share_batch(*nets[i].head, sum);
      outputs[i] = nets[i].head->forward(nets[i].encoder->forward(inputs[i]));
      (outputs[i] * along.slice(0, 7 * r / world, 7 * (r + 1) / world)).sum().backward();
    });
    EXPECT_EQ(sums, 2 * (20 + 2));  // each BatchNorm there and back
    std::vector<Tensor> input_gradients;
    for (const auto& t : inputs) input_gradients.push_back(t.grad());
    EXPECT_LT(distance(torch::cat(outputs), y), tolerance);
    EXPECT_LT(distance(torch::cat(input_gradients), x.grad()), tolerance);
    const auto want = tensors_of(whole, true);
    for (size_t p = 0; p < want.size(); ++p) {
      // (A bias before BatchNorm has no gradient but rounding.)
      if (want[p].norm().item<double>() < 1e-4) continue;
      Tensor total = torch::zeros_like(want[p]);
      for (const auto& net : nets) total += tensors_of(net, true)[p];
      EXPECT_LT(distance(total, want[p]), tolerance) << p;
    }
    const auto buffers = tensors_of(whole, false);
    for (size_t b = 0; b < buffers.size(); ++b) {
      for (const auto& net : nets) {
        EXPECT_LT(distance(tensors_of(net, false)[b], buffers[b]), tolerance) << b;
        EXPECT_TRUE(tensors_of(net, false)[b].equal(tensors_of(nets[0], false)[b]));
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, SharedBatches, ::testing::Values(2, 3));

TEST(SharedBatch, OnlyInTraining) {
  const Networks net = make({.width = 4, .norm = Norm::kBatch}, torch::kFloat);
  int sums = 0;
  share_batch(*net.encoder, [&](std::span<double>) { ++sums; });
  net.encoder->eval();
  const Tensor x = torch::randn({2, 3, 16, 16});
  const Tensor with = net.encoder->forward(x);
  EXPECT_EQ(sums, 0);
  share_batch(*net.encoder, {});
  EXPECT_TRUE(with.equal(net.encoder->forward(x)));
}

TEST(SharedBatch, MeansFarFromZeroDoNotCancel) {
  torch::nn::BatchNorm1d norm(3);
  const Tensor x = torch::randn({64, 3}, torch::kDouble).mul_(0.01).add_(100).to(torch::kFloat);
  const BatchSum alone = [](std::span<double>) {};
  const Tensor y = batch_norm(norm, x, alone), d = x.to(torch::kDouble);
  const Tensor want = (d - d.mean(0)) / (d.var(0, false) + 1e-5).sqrt();
  EXPECT_LT((y - want).abs().max().item<double>(), 5e-3);
}

TEST(SharedBatch, AFailedSumReachesTheCaller) {
  const Networks net = make({.width = 4, .norm = Norm::kBatch}, torch::kFloat);
  share_batch(*net.encoder, [](std::span<double>) { throw std::runtime_error("a rank is gone"); });
  EXPECT_THROW(net.encoder->forward(torch::randn({2, 3, 16, 16})), std::runtime_error);
}

}  // namespace
}  // namespace ebclr::nn
