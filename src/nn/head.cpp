#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "nn/encoder.h"

namespace ebclr::nn {

Head::Head(const HeadOptions& options, uint64_t seed) : options_(options) {
  if (options.layers < 1 || options.layers > 3)
    core::usage_error("nn.head", fmt::format("a head of {} layers; choose 1 to 3", options.layers));
  torch::NoGradGuard guard;
  core::Rng rng(seed, core::Stream::kInit, {1});
  for (int i = 0; i < options.layers; ++i) {
    const bool last = i + 1 == options.layers;
    const int64_t in = i == 0 ? options.in : options.hidden, out = last ? options.out : options.hidden;
    const bool norm = last ? options.output_norm : options.hidden_norm;
    const std::string number = std::to_string(i + 1);
    auto linear = register_module("fc" + number, torch::nn::Linear(in, out));
    const float bound = static_cast<float>(1 / std::sqrt(static_cast<double>(in)));
    for (auto& t : {linear->weight, linear->bias}) {
      float* p = t.data_ptr<float>();
      for (int64_t k = 0; k < t.numel(); ++k) p[k] = bound * (2 * rng.uniform() - 1);
    }
    linears_.push_back(linear);
    torch::nn::BatchNorm1d bn{nullptr};
    if (norm)
      bn = register_module(
          "bn" + number,
          torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(out).affine(!last || options.output_affine)));
    norms_.push_back(bn);
  }
}

torch::Tensor Head::forward(torch::Tensor x) {
  for (size_t i = 0; i < linears_.size(); ++i) {
    x = linears_[i]->forward(x);
    if (!norms_[i].is_empty()) x = batch_norm(norms_[i], x, batch_sum_);
    if (i + 1 < linears_.size()) x = activate(x, options_.activation);
  }
  return x;
}

HeadOptions fitted(HeadOptions head, int64_t features) {
  head.in = features;
  if (head.hidden <= 0) head.hidden = features;
  return head;
}

Networks make_networks(const EncoderOptions& encoder, const HeadOptions& head, uint64_t seed) {
  Networks out;
  out.encoder = std::make_shared<Encoder>(encoder, seed);
  out.head = std::make_shared<Head>(fitted(head, out.encoder->feature_dim()), seed);
  return out;
}

FreezeParameters::FreezeParameters(std::initializer_list<torch::nn::Module*> modules) {
  for (auto* module : modules)
    for (auto& p : module->parameters())
      if (p.requires_grad()) {
        p.requires_grad_(false);
        frozen_.push_back(p);
      }
}

FreezeParameters::~FreezeParameters() {
  for (auto& p : frozen_) p.requires_grad_(true);
}

std::vector<std::pair<std::string, torch::Tensor>> state_of(const torch::nn::Module& module,
                                                            const std::string& prefix) {
  std::vector<std::pair<std::string, torch::Tensor>> state;
  for (const auto& p : module.named_parameters()) state.emplace_back(prefix + p.key(), p.value());
  for (const auto& b : module.named_buffers()) state.emplace_back(prefix + b.key(), b.value());
  return state;
}

void copy_state(const torch::nn::Module& from, torch::nn::Module& to) {
  torch::NoGradGuard guard;
  const auto source = state_of(from, ""), target = state_of(to, "");
  TORCH_INTERNAL_ASSERT(source.size() == target.size());
  for (size_t i = 0; i < source.size(); ++i) {
    auto t = target[i].second;
    t.copy_(source[i].second);
  }
}

}  // namespace ebclr::nn
