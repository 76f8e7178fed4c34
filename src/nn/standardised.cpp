#include "nn/standardised.h"

#include <torch/torch.h>

#include <cmath>
#include <numbers>

namespace ebclr::nn {
namespace {

using torch::Tensor;

/// Weights as rows without their mean, and one over the norm of each: x [O, K], r [O, 1].
struct Centred {
  Tensor x, r;
};

Centred centred(const Tensor& weight) {
  const Tensor rows = weight.flatten(1);
  const Tensor x = rows - rows.mean(1, true);
  return {x, (x.square().sum(1, true) + kStandardisedEpsilon).rsqrt()};
}

/// Ties the kept values to the raw tensors: the gradient of the standardisation, without computing it again.
class StandardiseFunction : public torch::autograd::Function<StandardiseFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const Tensor& weight,
                                                const Tensor& bias, const Tensor& gain, const Tensor& skip,
                                                const Tensor& plain_weight, const Tensor& plain_bias,
                                                double scale) {
    ctx->save_for_backward({weight, bias, gain, skip});
    ctx->saved_data["scale"] = scale;
    // New handles of the same memory and version counter.
    return {plain_weight.detach(), plain_bias.detach()};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &weight = saved[0], &bias = saved[1], &gain = saved[2], &skip = saved[3];
    const double scale = ctx->saved_data["scale"].toDouble();
    const auto [x, r] = centred(weight);
    const Tensor g = grads[0].defined() ? grads[0].flatten(1) : torch::zeros_like(x);
    const Tensor gb = grads[1].defined() ? grads[1] : torch::zeros_like(bias);
    const Tensor s = skip * scale;
    const Tensor along = (g * x).sum(1, true) * r;  // [O, 1], gradient along the unit rows
    Tensor dx = (g - x * (along * r)) * (r * gain.unsqueeze(1) * s);
    dx = dx - dx.mean(1, true);
    const Tensor dskip = ((along.squeeze(1) * gain).sum() * scale + (gb * bias).sum()).view({1});
    return {dx.view_as(weight), gb * skip, along.squeeze(1) * s, dskip, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

double activation_gain(Activation activation) {
  const double slope = slope_of(activation);
  const double second = (1 + slope * slope) / 2, mean = (1 - slope) / std::sqrt(2 * std::numbers::pi);
  return 1 / std::sqrt(second - mean * mean);
}

void StandardisedConv::refresh() {
  std::vector<std::pair<const void*, uint32_t>> now;
  for (const Tensor* t : {&raw_.weight, &raw_.bias, &raw_.gain, &raw_.skip})
    if (t->defined()) now.emplace_back(t->data_ptr(), t->_version());
  if (values_.weight.defined() && now == made_from_) return;
  torch::NoGradGuard no_grad;
  const auto [x, r] = centred(raw_.weight);
  Tensor factor = raw_.gain * scale_;
  if (raw_.skip.defined()) factor = factor * raw_.skip;
  const Tensor weight = (x * (r * factor.unsqueeze(1))).view_as(raw_.weight);
  const Tensor bias = raw_.skip.defined() ? raw_.bias * raw_.skip : raw_.bias;
  if (!values_.weight.defined() || values_.weight.options().device() != weight.device() ||
      values_.weight.scalar_type() != weight.scalar_type()) {
    values_ = {weight.contiguous().clone(), bias.detach().clone()};
  } else {
    values_.weight.copy_(weight);
    values_.bias.copy_(bias);
  }
  made_from_ = std::move(now);
}

PlainConv StandardisedConv::plain() {
  refresh();
  bool learns = false;
  for (const Tensor* t : {&raw_.weight, &raw_.bias, &raw_.gain, &raw_.skip})
    learns = learns || (t->defined() && t->requires_grad());
  if (!learns || !torch::GradMode::is_enabled()) return values_;
  // libtorch's functions take no undefined tensors: a branch without a factor has a fixed one.
  const Tensor skip =
      raw_.skip.defined() ? raw_.skip : torch::ones({1}, raw_.weight.options().requires_grad(false));
  const auto out = StandardiseFunction::apply(raw_.weight, raw_.bias, raw_.gain, skip, values_.weight,
                                              values_.bias, scale_);
  return {out[0], out[1]};
}

}  // namespace ebclr::nn
