// SimSiam: a predictor and a stopped gradient, no negatives.

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "methods/families.h"
#include "methods/losses.h"

namespace ebclr::methods {
namespace {

class Simsiam : public Method {
 public:
  explicit Simsiam(const MethodOptions& options) : Method(options), o_(options.simsiam) {
    predictor_ = make_predictor(*head_, o_.predictor_hidden, options.seed + 1);
  }

  StepOutput step(const StepInput& input) override {
    const auto z1 = head_->forward(encoder_->forward(input.view1));
    const auto z2 = head_->forward(encoder_->forward(input.view2));
    const auto p1 = predictor_->forward(z1), p2 = predictor_->forward(z2);
    StepOutput out;
    out.loss =
        o_.stop_gradient ? simsiam_loss(p1, p2, z1.detach(), z2.detach()) : simsiam_loss(p1, p2, z1, z2);
    out.projections = z1.detach();
    return out;
  }

  std::vector<ParameterGroup> parameter_groups() override {
    auto groups = Method::parameter_groups();
    groups.push_back({predictor_->parameters(), o_.fixed_predictor_lr});
    return groups;
  }

  std::vector<std::pair<std::string, torch::Tensor>> state() override {
    auto state = Method::state();
    for (auto& item : nn::state_of(*predictor_, "predictor.")) state.push_back(item);
    return state;
  }

  void train(bool on) override {
    Method::train(on);
    predictor_->train(on);
  }
  void to(torch::Device device) override {
    Method::to(device);
    predictor_->to(device);
  }
  double forward_units() const override { return 6; }

 private:
  SimsiamOptions o_;
  std::shared_ptr<nn::Head> predictor_;
};

}  // namespace

std::unique_ptr<Method> make_simsiam(const MethodOptions& options, const MethodContext&) {
  return std::make_unique<Simsiam>(options);
}

}  // namespace ebclr::methods
