#include "nn/encoder.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "nn/standardised.h"

namespace ebclr::nn {
namespace {

torch::nn::Conv2d make_conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, bool bias) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(bias));
}

torch::nn::Conv2d make_stem(const EncoderOptions& o, bool bias) {
  switch (o.stem) {
    case Stem::kImagenet:
      return make_conv(o.channels, o.width, 7, 2, bias);
    case Stem::kPatch:
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(o.channels, o.width, 4).stride(4).bias(bias));
    case Stem::kCifar:
      break;
  }
  return make_conv(o.channels, o.width, 3, 1, bias);
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

/// Learned gains of a convolution, registered beside it, and its plain form.
std::shared_ptr<StandardisedConv> standardise(torch::nn::Module& owner, const std::string& name,
                                              const torch::nn::Conv2d& conv, double scale,
                                              const torch::Tensor& skip = {}) {
  const auto gain = owner.register_parameter(name + "_gain", torch::ones({conv->weight.size(0)}));
  return std::make_shared<StandardisedConv>(RawConv{conv->weight, conv->bias, gain, skip}, scale);
}

torch::Tensor convolve(const torch::nn::Conv2d& conv, const PlainConv& plain, const torch::Tensor& t) {
  // Patches lie side by side without a border; everything else keeps the size before its stride.
  const int64_t kernel = plain.weight.size(2), stride = conv->options.stride()->at(0);
  return torch::conv2d(t, plain.weight, plain.bias, conv->options.stride(),
                       /*padding=*/kernel == stride ? 0 : kernel / 2);
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
    register_module(options.stem == Stem::kImagenet ? "downsample" : "shortcut", shortcut);
  }
  layers_ = {{conv1, bn1}, {conv2, bn2}};
  if (bottleneck) layers_.push_back({conv3, bn3});
  if (!shortcut.is_empty())
    layers_.push_back({std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(shortcut->ptr(0)),
                       norm ? std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(shortcut->ptr(1))
                            : torch::nn::BatchNorm2d(nullptr)});
  if (options.norm != Norm::kSws) return;
  const auto skip = register_parameter("skip", torch::full({1}, options.skip));
  const char* names[] = {"conv1", "conv2", "conv3", "shortcut"};
  const size_t last = bottleneck ? 2 : 1;
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].standardised = standardise(*this, names[i > last ? 3 : i], layers_[i].conv,
                                          activation_gain(activation_), i == last ? skip : torch::Tensor());
}

torch::Tensor Block::apply(size_t i, const torch::Tensor& t) {
  auto& layer = layers_[i];
  if (layer.standardised) return convolve(layer.conv, layer.standardised->plain(), t);
  const auto y = layer.conv->forward(t);
  return layer.norm.is_empty() ? y : batch_norm(layer.norm, y, batch_sum_);
}

torch::Tensor Block::forward(const torch::Tensor& x) {
  auto h = apply(1, activate(apply(0, x), activation_));
  if (bottleneck_) h = apply(2, activate(h, activation_));
  return activate(h + (shortcut.is_empty() ? x : apply(layers_.size() - 1, x)), activation_);
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
  conv1 = register_module("conv1", make_stem(options, !norm));
  if (norm) bn1 = register_module("bn1", torch::nn::BatchNorm2d(options.width));
  if (options.norm == Norm::kSws)
    standardised_ = standardise(*this, "conv1", conv1, 1);  // images are no activations
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
    if (options.init == Init::kTorch && options.norm != Norm::kSws) {
      // libtorch's default: kaiming_uniform with a = sqrt(5), which is a bound of 1/sqrt(fan_in).
      fill_uniform(conv->weight, 1 / std::sqrt(fan_in), rng);
      if (conv->bias.defined()) fill_uniform(conv->bias, 1 / std::sqrt(fan_in), rng);
    } else {
      fill_uniform(conv->weight, std::sqrt(6 / ((1 + slope * slope) * fan_in)), rng);
      if (conv->bias.defined()) conv->bias.zero_();
    }
  }
  if (options.init == Init::kResidual && options.norm != Norm::kSws)
    for (auto& stage : stages_)
      for (auto& block : stage) block->last_conv()->weight.mul_(0.35);
}

torch::Tensor Encoder::stem(const torch::Tensor& x) {
  auto h = standardised_ ? convolve(conv1, standardised_->plain(), x) : conv1->forward(x);
  if (!bn1.is_empty()) h = batch_norm(bn1, h, batch_sum_);
  h = activate(h, options_.activation);
  return options_.stem == Stem::kImagenet ? torch::max_pool2d(h, 3, 2, 1) : h;
}

torch::Tensor Encoder::run_stages(torch::Tensor h, size_t first, size_t last) {
  for (size_t s = first; s < last; ++s)
    for (auto& block : stages_[s]) h = block->forward(h);
  return h;
}

torch::Tensor Encoder::forward(const torch::Tensor& x) {
  TORCH_CHECK(x.dim() == 4 && x.size(1) == options_.channels, "encoder expects [N, ", options_.channels,
              ", H, W], got ", x.sizes());
  if (x.size(2) < kSmallestSide || x.size(3) < kSmallestSide)
    core::usage_error("nn.encoder", fmt::format("images of {}x{} are too small; {}x{} is the least",
                                                x.size(3), x.size(2), kSmallestSide, kSmallestSide));
  if (options_.stem == Stem::kPatch && (x.size(2) % 4 != 0 || x.size(3) % 4 != 0))
    core::usage_error("nn.encoder", fmt::format("images of {}x{} do not divide into the 4x4 patches of "
                                                "encoder.stem patch; choose a size that is a multiple of 4",
                                                x.size(3), x.size(2)));
  return backend_ ? backend_->forward(x) : forward_reference(x);
}

torch::Tensor Encoder::forward_reference(const torch::Tensor& x) {
  return run_stages(stem(x), 0, 4).mean({2, 3});
}

torch::Tensor Encoder::forward_to_cut(const torch::Tensor& x, int cut) {
  return run_stages(stem(x), 0, static_cast<size_t>(cut));
}

torch::Tensor Encoder::forward_from_cut(const torch::Tensor& h, int cut) {
  return run_stages(h, static_cast<size_t>(cut), 4).mean({2, 3});
}

void Encoder::set_batch_sum(const BatchSum& sum) {
  batch_sum_ = sum;
  for (auto& stage : stages_)
    for (auto& block : stage) block->batch_sum_ = sum;
}

std::vector<Block::Layer> Encoder::layers() {
  std::vector<Block::Layer> list{{conv1, bn1, standardised_}};
  for (auto& stage : stages_)
    for (auto& block : stage) list.insert(list.end(), block->layers_.begin(), block->layers_.end());
  return list;
}

std::vector<PlainConv> Encoder::plain_convolutions() {
  std::vector<PlainConv> list;
  for (auto& layer : layers())
    list.push_back(layer.standardised ? layer.standardised->plain()
                                      : PlainConv{layer.conv->weight, layer.conv->bias});
  return list;
}

std::shared_ptr<Encoder> Encoder::folded() {
  torch::NoGradGuard guard;
  auto options = options_;
  options.norm = Norm::kNone;
  auto plain = std::make_shared<Encoder>(options, 0);
  plain->to(conv1->weight.device(), conv1->weight.scalar_type());
  plain->eval();
  const auto from = plain_convolutions();
  const auto source = layers(), target = plain->layers();
  for (size_t i = 0; i < target.size(); ++i) {
    auto weight = from[i].weight, bias = from[i].bias;
    if (const auto& bn = source[i].norm; !bn.is_empty()) {
      const auto factor = bn->weight / (bn->running_var + bn->options.eps()).sqrt();
      weight = weight * factor.view({-1, 1, 1, 1});
      bias = bn->bias - bn->running_mean * factor;
    }
    target[i].conv->weight.copy_(weight);
    target[i].conv->bias.copy_(bias);
  }
  return plain;
}

Stem parse_stem(const std::string& name) {
  if (name == "cifar") return Stem::kCifar;
  if (name == "imagenet") return Stem::kImagenet;
  if (name == "patch") return Stem::kPatch;
  core::usage_error("nn.encoder",
                    fmt::format("unknown encoder.stem '{}'; choose cifar, imagenet or patch", name));
}

}  // namespace ebclr::nn
