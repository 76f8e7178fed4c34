// SimSiam: a predictor and a stopped gradient, no negatives.

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "methods/families.h"
#include "methods/losses.h"

namespace ebclr::methods {
namespace {

class Simsiam : public Method {
 public:
  Simsiam(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks), o_(options.simsiam) {
    predictor_ = make_predictor(*head_, o_.predictor_hidden, options.seed + 1);
  }

  StepOutput step(const StepInput& input) override {
    const auto z1 = head_->forward(encoder_->forward(input.view1));
    const auto z2 = head_->forward(encoder_->forward(input.view2));
    const auto p1 = predictor_->forward(z1), p2 = predictor_->forward(z2);
    const auto all = o_.stop_gradient ? gather({p1, p2, z1.detach(), z2.detach()}, input.images())
                                      : gather({p1, p2, z1, z2}, input.images());
    StepOutput out;
    out.loss = simsiam_loss(all[0], all[1], all[2], all[3]);
    out.projections = all[2].detach();
    return out;
  }

  std::vector<MethodModule> modules() override {
    auto list = Method::modules();
    list.push_back({"predictor", predictor_,
                    o_.fixed_predictor_lr ? MethodModule::kLearnsAtFixedRate : MethodModule::kLearns});
    return list;
  }
  double forward_units(int64_t batch) const override { return simsiam_units({}, batch); }

 private:
  SimsiamOptions o_;
  std::shared_ptr<nn::Head> predictor_;
};

}  // namespace

// Two views forward (2) and backward (4).
double simsiam_units(const MethodOptions&, int64_t) {
  return 6;
}

std::unique_ptr<Method> make_simsiam(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Simsiam>(options, context);
}

}  // namespace ebclr::methods
