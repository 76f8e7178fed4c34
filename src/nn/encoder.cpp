#include "nn/encoder.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>

#include "core/error.h"
#include "core/rng.h"

namespace ebclr::nn {
namespace {

torch::nn::Conv2d make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, bool bias) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(bias));
}

struct Arch {
  std::string_view name;
  bool bottleneck;
  std::array<int64_t, 4> blocks;
};
constexpr Arch kArchs[] = {
    {"resnet18", false, {2, 2, 2, 2}}, {"resnet34", false, {3, 4, 6, 3}}, {"resnet50", true, {3, 4, 6, 3}}};

const Arch& find_arch(const std::string& name) {
  for (const auto& a : kArchs)
    if (a.name == name) return a;
  core::usage_error("nn.encoder",
                    fmt::format("unknown encoder.arch '{}'; choose resnet18, resnet34 or resnet50", name));
}

// Uniform in [-bound, bound] from our own stream, so that weights do not depend on libtorch's version.
void fill_uniform(torch::Tensor t, double bound, core::Rng& rng) {
  float* p = t.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) p[i] = static_cast<float>(bound) * (2 * rng.uniform() - 1);
}

}  // namespace

double slope_of(Activation activation) {
  return activation == Activation::kLeakyRelu ? kLeakySlope : 0.0;
}

torch::Tensor activate(const torch::Tensor& x, Activation activation) {
  return activation == Activation::kLeakyRelu ? torch::leaky_relu(x, kLeakySlope) : torch::relu(x);
}

Block::Block(bool bottleneck, int64_t in, int64_t planes, int64_t stride, const EncoderOptions& options)
    : bottleneck_(bottleneck), activation_(options.activation) {
  const bool norm = options.norm == Norm::kBatch;
  const int64_t out = bottleneck ? 4 * planes : planes;
  const auto add = [&](const char* conv_name, const char* norm_name, torch::nn::Conv2d& conv,
                       torch::nn::BatchNorm2d& bn, torch::nn::Conv2d made, int64_t channels) {
    conv = register_module(conv_name, made);
    if (norm) bn = register_module(norm_name, torch::nn::BatchNorm2d(channels));
  };
  if (bottleneck) {
    add("conv1", "bn1", conv1, bn1, make_conv(in, planes, 1, 1, !norm), planes);
    add("conv2", "bn2", conv2, bn2, make_conv(planes, planes, 3, stride, !norm), planes);
    add("conv3", "bn3", conv3, bn3, make_conv(planes, out, 1, 1, !norm), out);
  } else {
    add("conv1", "bn1", conv1, bn1, make_conv(in, planes, 3, stride, !norm), planes);
    add("conv2", "bn2", conv2, bn2, make_conv(planes, planes, 3, 1, !norm), planes);
  }
  if (stride != 1 || in != out) {
    shortcut = torch::nn::Sequential(make_conv(in, out, 1, stride, !norm));
    if (norm) shortcut->push_back(torch::nn::BatchNorm2d(out));
    register_module("shortcut", shortcut);
  }
}

torch::Tensor Block::forward(const torch::Tensor& x) {
  auto apply = [](torch::nn::Conv2d& conv, torch::nn::BatchNorm2d& bn, const torch::Tensor& t) {
    const auto y = conv->forward(t);
    return bn.is_empty() ? y : bn->forward(y);
  };
  auto h = activate(apply(conv1, bn1, x), activation_);
  h = apply(conv2, bn2, h);
  if (bottleneck_) h = apply(conv3, bn3, activate(h, activation_));
  return activate(h + (shortcut.is_empty() ? x : shortcut->forward(x)), activation_);
}

Encoder::Encoder(const EncoderOptions& options, uint64_t seed) : options_(options) {
  const Arch& arch = find_arch(options.arch);
  if (options.width < 1 || options.width > 1024)
    core::usage_error("nn.encoder",
                      fmt::format("encoder.width {} is out of range; choose 1 to 1024", options.width));
  if (options.channels != 1 && options.channels != 3)
    core::usage_error("nn.encoder",
                      fmt::format("{} input channels; images must have 1 or 3", options.channels));
  const bool norm = options.norm == Norm::kBatch;
  conv1 = register_module("conv1", make_conv(options.channels, options.width, 3, 1, !norm));
  if (norm) bn1 = register_module("bn1", torch::nn::BatchNorm2d(options.width));
  int64_t in = options.width;
  for (size_t s = 0; s < 4; ++s) {
    const int64_t planes = options.width << s;
    torch::nn::Sequential stage;
    auto& blocks = stages_.emplace_back();
    for (int64_t b = 0; b < arch.blocks[s]; ++b) {
      auto block = std::make_shared<Block>(arch.bottleneck, in, planes, b == 0 && s > 0 ? 2 : 1, options);
      in = arch.bottleneck ? 4 * planes : planes;
      stage->push_back(block);
      blocks.push_back(block);
    }
    register_module("layer" + std::to_string(s + 1), stage);
  }
  feature_dim_ = in;

  // Weights from our own seeded stream, parameter by parameter in registration order.
  torch::NoGradGuard guard;
  core::Rng rng(seed, core::Stream::kInit);
  const double slope = slope_of(options.activation);
  for (auto& item : named_modules("", /*include_self=*/false)) {
    auto* conv = item.value()->as<torch::nn::Conv2d>();
    if (!conv) continue;
    const auto fan_in = static_cast<double>(conv->weight.numel() / conv->weight.size(0));
    if (options.init == Init::kTorch) {
      // libtorch's default: kaiming_uniform with a = sqrt(5), which is a bound of 1/sqrt(fan_in).
      fill_uniform(conv->weight, 1 / std::sqrt(fan_in), rng);
      if (conv->bias.defined()) fill_uniform(conv->bias, 1 / std::sqrt(fan_in), rng);
    } else {
      fill_uniform(conv->weight, std::sqrt(6 / ((1 + slope * slope) * fan_in)), rng);
      if (conv->bias.defined()) conv->bias.zero_();
    }
  }
  if (options.init == Init::kResidual)
    for (auto& stage : stages_)
      for (auto& block : stage) block->last_conv()->weight.mul_(0.35);
}

torch::Tensor Encoder::stem(const torch::Tensor& x) {
  auto h = conv1->forward(x);
  if (!bn1.is_empty()) h = bn1->forward(h);
  return activate(h, options_.activation);
}

torch::Tensor Encoder::run_stages(torch::Tensor h, size_t first, size_t last) {
  for (size_t s = first; s < last; ++s)
    for (auto& block : stages_[s]) h = block->forward(h);
  return h;
}

torch::Tensor Encoder::forward(const torch::Tensor& x) {
  TORCH_CHECK(x.dim() == 4 && x.size(1) == options_.channels, "encoder expects [N, ", options_.channels,
              ", H, W], got ", x.sizes());
  if (x.size(2) < 16 || x.size(3) < 16)
    core::usage_error("nn.encoder",
                      fmt::format("images of {}x{} are too small; 16x16 is the least", x.size(3), x.size(2)));
  return backend_ ? backend_->forward(x) : forward_reference(x);
}

torch::Tensor Encoder::forward_reference(const torch::Tensor& x) {
  return run_stages(stem(x), 0, 4).mean({2, 3});
}

torch::Tensor Encoder::forward_head(const torch::Tensor& x, int cut) {
  return run_stages(stem(x), 0, static_cast<size_t>(cut));
}

torch::Tensor Encoder::forward_tail(const torch::Tensor& h, int cut) {
  return run_stages(h, static_cast<size_t>(cut), 4).mean({2, 3});
}

Norm parse_norm(const std::string& name) {
  if (name == "none") return Norm::kNone;
  if (name == "batch") return Norm::kBatch;
  core::usage_error("nn.encoder", fmt::format("unknown encoder.norm '{}'; choose none or batch", name));
}

Activation parse_activation(const std::string& name) {
  if (name == "leaky_relu") return Activation::kLeakyRelu;
  if (name == "relu") return Activation::kRelu;
  core::usage_error("nn.encoder",
                    fmt::format("unknown encoder.activation '{}'; choose leaky_relu or relu", name));
}

Init parse_init(const std::string& name) {
  if (name == "torch") return Init::kTorch;
  if (name == "residual") return Init::kResidual;
  core::usage_error("nn.encoder", fmt::format("unknown encoder.init '{}'; choose torch or residual", name));
}

}  // namespace ebclr::nn
