// SimCLR: NT-Xent over the 2N views of a batch.

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "methods/families.h"
#include "methods/losses.h"

namespace ebclr::methods {
namespace {

class Simclr : public Method {
 public:
  Simclr(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks), o_(options.simclr) {}

  StepOutput step(const StepInput& input) override {
    const auto n = input.view1.size(0);
    // Both views pass together, so that BatchNorm sees the whole batch of 2N as in the original work.
    const auto outputs = head_->forward(encoder_->forward(torch::cat({input.view1, input.view2})));
    const auto all = gather({outputs.narrow(0, 0, n), outputs.narrow(0, n, n)}, input.images());
    StepOutput out;
    out.loss = nt_xent(all[0], all[1], o_.temperature);
    out.projections = all[0].detach();
    return out;
  }
  double forward_units(int64_t batch) const override { return simclr_units({}, batch); }

 private:
  SimclrOptions o_;
};

}  // namespace

// Two views forward (2) and backward (4).
double simclr_units(const MethodOptions&, int64_t) {
  return 6;
}

std::unique_ptr<Method> make_simclr(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Simclr>(options, context);
}

}  // namespace ebclr::methods
