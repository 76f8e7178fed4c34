#pragma once

#include "nn/encoder.h"

namespace ebclr::methods {

/// A slowly moving copy of an encoder and its head (MoCo's key network, BYOL's target).
class MomentumCopy {
 public:
  /// An exact copy; none of its parameters asks for a gradient.
  MomentumCopy(const nn::Encoder& encoder, const nn::Head& head);

  /// x [N, C, H, W] -> [N, D], no gradient.
  torch::Tensor forward(const torch::Tensor& x);
  /// copy <- momentum * copy + (1 - momentum) * source, parameters; buffers are each network's own.
  void update(const nn::Encoder& encoder, const nn::Head& head, double momentum);

  std::shared_ptr<nn::Encoder> encoder() { return encoder_; }
  std::shared_ptr<nn::Head> head() { return head_; }

 private:
  std::shared_ptr<nn::Encoder> encoder_;
  std::shared_ptr<nn::Head> head_;
};

}  // namespace ebclr::methods
