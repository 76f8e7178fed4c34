// BYOL: an online network predicts a slowly moving target.

#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "methods/families.h"
#include "methods/losses.h"
#include "methods/momentum.h"

namespace ebclr::methods {
namespace {

class Byol : public Method {
 public:
  explicit Byol(const MethodOptions& options)
      : Method(options), o_(options.byol), target_(*encoder_, *head_) {
    predictor_ = make_predictor(*head_, o_.predictor_hidden, options.seed + 1);
  }

  StepOutput step(const StepInput& input) override {
    const auto z1 = head_->forward(encoder_->forward(input.view1));
    const auto z2 = head_->forward(encoder_->forward(input.view2));
    StepOutput out;
    out.loss = byol_loss(predictor_->forward(z1), predictor_->forward(z2), target_.forward(input.view1),
                         target_.forward(input.view2));
    out.projections = z1.detach();
    out.metrics = {{"momentum", momentum_at(input.progress)}};
    return out;
  }

  void after_update(const StepInput& input) override {
    target_.update(*encoder_, *head_, momentum_at(input.progress));
  }

  std::vector<ParameterGroup> parameter_groups() override {
    auto groups = Method::parameter_groups();
    groups.push_back({predictor_->parameters(), false});
    return groups;
  }

  std::vector<std::pair<std::string, torch::Tensor>> state() override {
    auto state = Method::state();
    for (auto& item : nn::state_of(*predictor_, "predictor.")) state.push_back(item);
    for (auto& item : nn::state_of(*target_.encoder(), "target_encoder.")) state.push_back(item);
    for (auto& item : nn::state_of(*target_.head(), "target_head.")) state.push_back(item);
    return state;
  }

  void train(bool on) override {
    Method::train(on);
    predictor_->train(on);
    target_.encoder()->train(on);
    target_.head()->train(on);
  }
  void to(torch::Device device) override {
    Method::to(device);
    predictor_->to(device);
    target_.encoder()->to(device);
    target_.head()->to(device);
  }
  std::vector<std::shared_ptr<nn::Encoder>> encoders() override { return {encoder_, target_.encoder()}; }
  // Online forward and backward of two views (6), target forward of two (2).
  double forward_units() const override { return 8; }

 private:
  double momentum_at(double progress) const {
    return o_.momentum_end -
           (o_.momentum_end - o_.momentum) * (std::cos(std::numbers::pi * progress) + 1) / 2;
  }

  ByolOptions o_;
  MomentumCopy target_;
  std::shared_ptr<nn::Head> predictor_;
};

}  // namespace

std::unique_ptr<Method> make_byol(const MethodOptions& options, const MethodContext&) {
  return std::make_unique<Byol>(options);
}

}  // namespace ebclr::methods
