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
  double (*units)(const MethodOptions&, int64_t batch);
  int64_t least_batch;  // contrast and BatchNorm need two images, EBCLR has its samples
};
const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {"ebclr", make_ebclr, ebclr_units, 1}, {"simclr", make_simclr, simclr_units, 2},
      {"moco", make_moco, moco_units, 2},    {"simsiam", make_simsiam, simsiam_units, 2},
      {"byol", make_byol, byol_units, 2},    {kSupervised, make_supervised, supervised_units, 2}};
  return table;
}

const Family& family(const std::string& name) {
  for (const auto& f : families())
    if (f.name == name) return f;
  if (name == kCustomMethod)
    core::usage_error("methods",
                      "method.name custom: the method belongs to another program; train it with that");
  core::usage_error(
      "methods", fmt::format("unknown method.name '{}'; choose {}", name, core::join(method_names(), ", ")));
}

}  // namespace

Method::Method(const MethodOptions& options, std::shared_ptr<dist::Group> ranks) : ranks_(std::move(ranks)) {
  auto networks = nn::make_networks(options.encoder, options.head, options.seed);
  encoder_ = std::move(networks.encoder);
  head_ = std::move(networks.head);
}

std::vector<MethodModule> Method::modules() {
  return {{"encoder", encoder_}, {"head", head_}};
}

std::vector<ParameterGroup> Method::parameter_groups() {
  ParameterGroup scheduled, fixed{.fixed_lr = true};
  for (const auto& m : modules()) {
    if (m.role == MethodModule::kFollows) continue;
    auto& group = m.role == MethodModule::kLearns ? scheduled : fixed;
    for (auto& p : m.module->parameters()) group.parameters.push_back(p);
  }
  std::vector<ParameterGroup> groups{scheduled};
  if (!fixed.parameters.empty()) groups.push_back(fixed);
  return groups;
}

std::vector<std::pair<std::string, torch::Tensor>> Method::state() {
  std::vector<std::pair<std::string, torch::Tensor>> state;
  for (const auto& m : modules())
    for (auto& item : nn::state_of(*m.module, m.name + ".")) state.push_back(item);
  return state;
}

std::vector<std::shared_ptr<nn::Encoder>> Method::encoders() {
  std::vector<std::shared_ptr<nn::Encoder>> list;
  for (const auto& m : modules())
    if (auto encoder = std::dynamic_pointer_cast<nn::Encoder>(m.module)) list.push_back(encoder);
  return list;
}

nlohmann::json Method::small_state() const {
  return nlohmann::json::object();
}
void Method::load_small_state(const nlohmann::json&) {}

void Method::train(bool on) {
  for (const auto& m : modules()) m.module->train(on);
}

void Method::to(torch::Device device) {
  for (const auto& m : modules()) m.module->to(device);
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
  return family(options.name).make(options, context);
}

double forward_units(const MethodOptions& options, int64_t batch) {
  return family(options.name).units(options, batch);
}

void fit_to_classes(MethodOptions& options, int64_t classes) {
  if (options.name != kSupervised) return;
  if (classes < 2)
    core::usage_error("methods.supervised",
                      fmt::format("the labels name {} class(es); two are the least", classes));
  options.head.out = classes;
}

int64_t least_batch(const std::string& method) {
  return method == kCustomMethod ? 1 : family(method).least_batch;
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
