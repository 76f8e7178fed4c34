#include "methods/momentum.h"

#include <torch/torch.h>

namespace ebclr::methods {
namespace {

void move_towards(torch::nn::Module& target, const torch::nn::Module& source, double momentum) {
  torch::NoGradGuard no_grad;
  const auto from = source.parameters();
  auto to = target.parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].mul_(momentum).add_(from[i], 1 - momentum);
}

}  // namespace

MomentumCopy::MomentumCopy(const nn::Encoder& encoder, const nn::Head& head)
    : encoder_(std::make_shared<nn::Encoder>(encoder.options(), 0)),
      head_(std::make_shared<nn::Head>(head.options(), 0)) {
  nn::copy_state(encoder, *encoder_);
  nn::copy_state(head, *head_);
  for (auto& p : encoder_->parameters()) p.requires_grad_(false);
  for (auto& p : head_->parameters()) p.requires_grad_(false);
}

torch::Tensor MomentumCopy::forward(const torch::Tensor& x) {
  torch::NoGradGuard no_grad;
  return head_->forward(encoder_->forward(x));
}

void MomentumCopy::update(const nn::Encoder& encoder, const nn::Head& head, double momentum) {
  move_towards(*encoder_, encoder, momentum);
  move_towards(*head_, head, momentum);
}

}  // namespace ebclr::methods
