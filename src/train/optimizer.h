#pragma once

#include <torch/optim/optimizer.h>

#include <memory>

#include "core/safetensors.h"
#include "dist/group.h"
#include "methods/method.h"
#include "run/config.h"

namespace ebclr::train {

/// libtorch's Adam or SGD over a method's parameter groups, with a state that can be saved and restored.
class Optimizer {
 public:
  Optimizer(const run::OptimizerOptions& options, std::vector<methods::ParameterGroup> groups, double lr);

  void zero_grad();
  /// Over all ranks, which call it together.
  void sum_gradients(dist::Group& ranks);
  /// L2 norm of all gradients; clips to options.clip_norm when that is set.
  double gradient_norm();
  /// One update with this learning rate; groups with a fixed rate use `fixed_lr`.
  void step(double lr, double fixed_lr);

  /// Adds "optimizer/..." tensors.
  void save(core::SafeTensors& out) const;
  /// Restores them; throws Error naming `where` when something is missing.
  void load(const core::SafeTensors& in, const std::string& where);

 private:
  run::OptimizerOptions options_;
  std::vector<methods::ParameterGroup> groups_;
  std::unique_ptr<torch::optim::Optimizer> torch_;
};

/// Factor of the base learning rate at a step of a run of so many steps: warm-up, then the schedule.
double schedule_factor(const run::OptimizerOptions& options, int64_t step, int64_t steps_per_epoch,
                       int64_t epochs);

}  // namespace ebclr::train
