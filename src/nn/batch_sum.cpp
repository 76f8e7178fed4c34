#include "nn/batch_sum.h"

#include <torch/torch.h>

#include <algorithm>

#include "nn/encoder.h"

namespace ebclr::nn {
namespace {

using torch::Tensor;

/// What a pass keeps for its way back, beside tensors.
struct Shared : torch::CustomClassHolder {
  BatchSum sum;
  double epsilon = 0;
  double count = 0;  // values per channel of the whole batch
  Tensor mean, var;  // [C] double, on the host
  Tensor inverse() const { return (var + epsilon).rsqrt(); }
};

/// All dimensions but the channels'.
std::vector<int64_t> others(const Tensor& x) {
  std::vector<int64_t> dims = {0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

/// [C] in x's type and place, to be multiplied with x.
Tensor per_channel(const Tensor& values, const Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  return values.to(x.options().requires_grad(false)).view(shape);
}

Tensor on_host(const Tensor& t) {
  return t.to(torch::TensorOptions(torch::kCPU).dtype(torch::kDouble));
}

void sum_over(const BatchSum& sum, Tensor& numbers) {
  sum({numbers.data_ptr<double>(), static_cast<size_t>(numbers.numel())});
}

/// Count, mean and variance of the whole batch. Each part is centred by itself and merged in double: no
/// cancellation when the mean is far from zero.
void measure(const Tensor& x, Shared& shared) {
  const int64_t channels = x.size(1), mine = channels > 0 ? x.numel() / channels : 0;
  Tensor numbers = torch::zeros({1 + 2 * channels}, torch::kDouble);
  Tensor sums = numbers.narrow(0, 1, channels), squares = numbers.narrow(0, 1 + channels, channels);
  if (mine > 0) {
    const auto [var, mean] = torch::var_mean(x, others(x), /*unbiased=*/false);
    const Tensor m = on_host(mean);
    numbers[0] = static_cast<double>(mine);
    sums.copy_(m * mine);
    squares.copy_((on_host(var) + m * m) * mine);
  }
  sum_over(shared.sum, numbers);
  shared.count = numbers[0].item<double>();
  shared.mean = sums / shared.count;
  shared.var = (squares / shared.count - shared.mean * shared.mean).clamp_min(0);
}

/// (x - mean) / std. Weight and bias follow as ordinary tensors do.
class NormaliseFunction : public torch::autograd::Function<NormaliseFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x,
                        const c10::intrusive_ptr<Shared>& shared) {
    measure(x, *shared);
    ctx->save_for_backward({x});
    ctx->saved_data["shared"] = c10::IValue::make_capsule(shared);
    return (x - per_channel(shared->mean, x)) * per_channel(shared->inverse(), x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto shared = c10::static_intrusive_pointer_cast<Shared>(ctx->saved_data["shared"].toCapsule());
    const Tensor x = ctx->get_saved_variables()[0], &g = grads[0];
    const int64_t channels = x.size(1);
    const Tensor inverse = shared->inverse(), centred = x - per_channel(shared->mean, x);
    Tensor numbers =
        torch::cat({on_host(g.sum(others(x))), on_host((g * centred).sum(others(x)))}) / shared->count;
    sum_over(shared->sum, numbers);
    const Tensor mean_g = numbers.narrow(0, 0, channels), mean_gz = numbers.narrow(0, channels, channels);
    return {(g - per_channel(mean_g, x) - centred * per_channel(inverse * inverse * mean_gz, x)) *
                per_channel(inverse, x),
            Tensor()};
  }
};

}  // namespace

Tensor shared_batch_norm(const Tensor& x, const NormParts& norm, const BatchSum& sum) {
  const auto shared = c10::make_intrusive<Shared>();
  shared->sum = sum;
  shared->epsilon = norm.epsilon;
  Tensor y = NormaliseFunction::apply(x, shared);
  if (norm.weight.defined()) y = y * per_channel(norm.weight, x) + per_channel(norm.bias, x);
  torch::NoGradGuard no_grad;
  Tensor mean = norm.running_mean, var = norm.running_var, batches = norm.num_batches_tracked;
  batches.add_(1);
  const double momentum = norm.momentum ? *norm.momentum : 1.0 / batches.item<double>();
  const double unbiased = shared->count / std::max(shared->count - 1, 1.0);
  mean.mul_(1 - momentum).add_(shared->mean.to(mean.options()), momentum);
  var.mul_(1 - momentum).add_((shared->var * unbiased).to(var.options()), momentum);
  return y;
}

void share_batch(torch::nn::Module& module, const BatchSum& sum) {
  module.apply([&](torch::nn::Module& m) {
    if (auto* encoder = m.as<Encoder>()) encoder->set_batch_sum(sum);
    if (auto* head = m.as<Head>()) head->set_batch_sum(sum);
  });
}

}  // namespace ebclr::nn
