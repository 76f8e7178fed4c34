#include "methods/method.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "methods/families.h"

namespace ebclr::methods {
namespace {

struct Family {
  std::string name;
  std::unique_ptr<Method> (*make)(const MethodOptions&, const MethodContext&);
};
const std::vector<Family>& families() {
  static const std::vector<Family> table = {{"ebclr", make_ebclr},
                                            {"simclr", make_simclr},
                                            {"moco", make_moco},
                                            {"simsiam", make_simsiam},
                                            {"byol", make_byol}};
  return table;
}

nn::HeadOptions fitted(nn::HeadOptions head, int64_t features) {
  head.in = features;
  if (head.hidden <= 0) head.hidden = features;
  return head;
}

}  // namespace

Method::Method(const MethodOptions& options)
    : encoder_(std::make_shared<nn::Encoder>(options.encoder, options.seed)),
      head_(std::make_shared<nn::Head>(fitted(options.head, encoder_->feature_dim()), options.seed)) {}

std::vector<ParameterGroup> Method::parameter_groups() {
  ParameterGroup group;
  for (auto& p : encoder_->parameters()) group.parameters.push_back(p);
  for (auto& p : head_->parameters()) group.parameters.push_back(p);
  return {group};
}

std::vector<std::pair<std::string, torch::Tensor>> Method::state() {
  auto state = nn::state_of(*encoder_, "encoder.");
  for (auto& item : nn::state_of(*head_, "head.")) state.push_back(item);
  return state;
}

nlohmann::json Method::small_state() const {
  return nlohmann::json::object();
}
void Method::load_small_state(const nlohmann::json&) {}

void Method::train(bool on) {
  encoder_->train(on);
  head_->train(on);
}

void Method::to(torch::Device device) {
  encoder_->to(device);
  head_->to(device);
}

const std::vector<std::string>& method_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& f : families()) list.push_back(f.name);
    return list;
  }();
  return names;
}

std::unique_ptr<Method> make_method(const MethodOptions& options, const MethodContext& context) {
  for (const auto& f : families())
    if (f.name == options.name) return f.make(options, context);
  core::usage_error("methods", fmt::format("unknown method.name '{}'; choose {}", options.name,
                                           core::join(method_names(), ", ")));
}

std::shared_ptr<nn::Head> make_predictor(const nn::Head& projection, int64_t hidden, uint64_t seed) {
  const int64_t dim = projection.options().out;
  return std::make_shared<nn::Head>(nn::HeadOptions{.in = dim,
                                                    .hidden = hidden,
                                                    .out = dim,
                                                    .hidden_norm = true,
                                                    .activation = projection.options().activation},
                                    seed);
}

double projection_spread(const torch::Tensor& outputs) {
  torch::NoGradGuard no_grad;
  return ebm::unit_rows(outputs).std(0, /*unbiased=*/false).mean().item<double>();
}

}  // namespace ebclr::methods
