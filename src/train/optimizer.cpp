#include "train/optimizer.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cmath>
#include <numbers>

namespace ebclr::train {
namespace {

// Key of a parameter in libtorch's state map; it changed its type with version 2.
auto state_key(const torch::Tensor& parameter) {
#if TORCH_VERSION_MAJOR >= 2
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

}  // namespace

Optimizer::Optimizer(const run::OptimizerOptions& options, std::vector<methods::ParameterGroup> groups,
                     double lr)
    : options_(options), groups_(std::move(groups)) {
  std::vector<torch::optim::OptimizerParamGroup> torch_groups;
  for (const auto& g : groups_) torch_groups.emplace_back(g.parameters);
  if (options.kind == run::OptimizerKind::kAdam)
    torch_ = std::make_unique<torch::optim::Adam>(torch_groups, torch::optim::AdamOptions(lr)
                                                                    .betas({options.beta1, options.beta2})
                                                                    .weight_decay(options.weight_decay));
  else
    torch_ = std::make_unique<torch::optim::SGD>(
        torch_groups,
        torch::optim::SGDOptions(lr).momentum(options.momentum).weight_decay(options.weight_decay));
}

void Optimizer::zero_grad() {
  torch_->zero_grad();
}

void Optimizer::sum_gradients(dist::Group& ranks) {
  std::vector<torch::Tensor> all;
  for (const auto& g : groups_) all.insert(all.end(), g.parameters.begin(), g.parameters.end());
  dist::sum_gradients(ranks, all);
}

double Optimizer::gradient_norm() {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> norms;
  for (const auto& g : groups_)
    for (const auto& p : g.parameters)
      if (p.grad().defined()) norms.push_back(p.grad().norm());
  const double norm = torch::stack(norms).norm().item<double>();
  if (options_.clip_norm > 0 && std::isfinite(norm) && norm > options_.clip_norm)
    for (const auto& g : groups_)
      for (const auto& p : g.parameters)
        if (p.grad().defined()) p.grad().mul_(options_.clip_norm / norm);
  return norm;
}

void Optimizer::step(double lr, double fixed_lr) {
  for (size_t i = 0; i < groups_.size(); ++i)
    torch_->param_groups()[i].options().set_lr(groups_[i].fixed_lr ? fixed_lr : lr);
  torch_->step();
  // libtorch's SGD writes through .data(), which leaves the version counters alone; whoever caches something
  // made from the weights (the CPU engine's transformed ones) looks at those counters.
  for (const auto& g : groups_)
    for (const auto& p : g.parameters) p.unsafeGetTensorImpl()->bump_version();
}

void Optimizer::save(core::SafeTensors& out) const {
  int64_t index = 0;
  for (const auto& g : groups_)
    for (const auto& p : g.parameters) {
      const std::string name = fmt::format("optimizer/{:04}.", index++);
      const auto it = torch_->state().find(state_key(p));
      if (it == torch_->state().end()) continue;  // before the first step there is no state
      if (options_.kind == run::OptimizerKind::kAdam) {
        const auto& s = static_cast<const torch::optim::AdamParamState&>(*it->second);
        out.tensors[name + "exp_avg"] = s.exp_avg();
        out.tensors[name + "exp_avg_sq"] = s.exp_avg_sq();
        out.tensors[name + "step"] = torch::tensor(s.step(), torch::kInt64);
      } else if (const auto& s = static_cast<const torch::optim::SGDParamState&>(*it->second);
                 s.momentum_buffer().defined()) {
        out.tensors[name + "momentum"] = s.momentum_buffer();
      }
    }
}

void Optimizer::load(const core::SafeTensors& in, const std::string& where) {
  torch_->state().clear();
  int64_t index = 0;
  for (const auto& g : groups_)
    for (const auto& p : g.parameters) {
      const std::string name = fmt::format("optimizer/{:04}.", index++);
      if (options_.kind == run::OptimizerKind::kAdam) {
        if (!in.tensors.count(name + "step")) continue;
        auto s = std::make_unique<torch::optim::AdamParamState>();
        s->step(in.at(name + "step", where).item<int64_t>());
        s->exp_avg(in.at(name + "exp_avg", where).to(p.device()).clone());
        s->exp_avg_sq(in.at(name + "exp_avg_sq", where).to(p.device()).clone());
        torch_->state()[state_key(p)] = std::move(s);
      } else if (in.tensors.count(name + "momentum")) {
        auto s = std::make_unique<torch::optim::SGDParamState>();
        s->momentum_buffer(in.at(name + "momentum", where).to(p.device()).clone());
        torch_->state()[state_key(p)] = std::move(s);
      }
    }
}

double schedule_factor(const run::OptimizerOptions& o, int64_t step, int64_t steps_per_epoch,
                       int64_t epochs) {
  const double total = static_cast<double>(steps_per_epoch * epochs);
  const double warm = std::min(o.warmup_epochs * static_cast<double>(steps_per_epoch), total);
  const auto t = static_cast<double>(step);
  if (t < warm) return (t + 1) / warm;
  if (o.schedule == run::ScheduleKind::kConstant || total <= warm) return 1;
  return 0.5 * (1 + std::cos(std::numbers::pi * (t - warm) / (total - warm)));
}

}  // namespace ebclr::train
