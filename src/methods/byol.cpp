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
  Byol(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks), o_(options.byol), target_(*encoder_, *head_) {
    predictor_ = make_predictor(*head_, o_.predictor_hidden, options.seed + 1);
  }

  StepOutput step(const StepInput& input) override {
    const auto z1 = head_->forward(encoder_->forward(input.view1));
    const auto z2 = head_->forward(encoder_->forward(input.view2));
    StepOutput out;
    // In this order: running statistics remember it.
    const auto t2 = target_.forward(input.view2), t1 = target_.forward(input.view1);
    const auto p2 = predictor_->forward(z2), p1 = predictor_->forward(z1);
    const auto all = gather({p1, p2, t1, t2, z1.detach()}, input.images());
    out.loss = 2 * byol_loss(all[0], all[1], all[2], all[3]);  // the original sums both directions
    out.projections = all[4].detach();
    out.metrics = {{"momentum", momentum_at(input.progress)}};
    return out;
  }

  void after_update(const StepInput& input) override {
    target_.update(*encoder_, *head_, momentum_at(input.progress));
  }

  std::vector<MethodModule> modules() override {
    auto list = Method::modules();
    list.push_back({"predictor", predictor_});
    list.push_back({"target_encoder", target_.encoder(), MethodModule::kFollows});
    list.push_back({"target_head", target_.head(), MethodModule::kFollows});
    return list;
  }
  double forward_units(int64_t batch) const override { return byol_units({}, batch); }

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

// Online forward and backward of two views (6), target forward of two (2).
double byol_units(const MethodOptions&, int64_t) {
  return 8;
}

std::unique_ptr<Method> make_byol(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Byol>(options, context);
}

}  // namespace ebclr::methods
