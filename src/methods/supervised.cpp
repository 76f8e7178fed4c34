// Learning from labels: cross entropy of a linear head over both views, and as an option JEM's joint
// objective (Grathwohl et al., 2020), in which the same logits are an energy of images too.

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "methods/chains.h"
#include "methods/contrastive_energy.h"
#include "methods/families.h"
#include "methods/losses.h"

namespace ebclr::methods {
namespace {

constexpr std::string_view kSupervisedComponent = "methods.supervised";

/// Energies of a sane classifier stay within tens of each other; beyond this the chains have run away.
constexpr double kMaxGap = 100;

class Supervised : public Method {
 public:
  Supervised(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks),
        norm_(options.encoder.norm),
        o_(options.ebclr),
        chains_(o_, options.seed, context, kSupervisedComponent) {
    if (joint() && (o_.adaptive.on || o_.balance.kind != ebm::BalanceKind::kNone))
      core::usage_error(kSupervisedComponent, "adaptive.on and balance.kind belong to ebclr; leave them out");
  }

  StepOutput step(const StepInput& input) override {
    check_labels(input);
    const auto n = input.view1.size(0);
    const auto outputs =
        head_->forward(encoder_->forward(torch::cat({input.view1, input.view2})));  // [2n, K]
    // Labels travel with the logits; a float holds whole numbers up to 2^24.
    const auto all = gather({outputs.narrow(0, 0, n), outputs.narrow(0, n, n),
                             input.labels.to(outputs.options().requires_grad(false)).unsqueeze(1)},
                            input.images());
    const auto logits = torch::cat({all[0], all[1]});  // [2N, K] of all ranks
    const auto one = all[2].detach().squeeze(1).to(torch::kInt64), labels = torch::cat({one, one});
    StepOutput out;
    const auto entropy = torch::nn::functional::cross_entropy(logits, labels);
    out.loss = entropy;
    out.metrics = {{"cross_entropy", entropy.item<double>()},
                   {"accuracy", logits.argmax(1).eq(labels).to(torch::kFloat32).mean().item<double>()}};
    if (joint()) add_generative_term(all[0], input, out);
    return out;
  }

  void after_update(const StepInput&) override { chains_.keep(); }

  nlohmann::json small_state() const override { return chains_.state(); }
  void load_small_state(const nlohmann::json& s) override { chains_.load(s); }
  void reseed(uint64_t seed) override { chains_.reseed(seed); }
  ebm::ReplayBuffer* buffer() override { return chains_.buffer(); }

  double forward_units(int64_t batch) const override { return units_with_chains(o_, batch); }

  std::vector<MetricLimit> limits() const override { return {{"gap", kMaxGap}}; }

  std::vector<std::string> warnings() const override {
    if (!joint() || norm_ != nn::Norm::kBatch) return {};
    return {
        "the joint objective on an encoder with BatchNorm: samples and images share its statistics, which "
        "tends to diverge; an encoder without (method.name ebclr) is safer"};
  }

 private:
  bool joint() const { return chains_.any(); }

  void check_labels(const StepInput& input) const {
    if (!input.labels.defined() || input.labels.size(0) != input.view1.size(0))
      core::usage_error(kSupervisedComponent, "the images have no labels; give some with --labels FILE.csv");
    const auto low = input.labels.min().item<int64_t>(), high = input.labels.max().item<int64_t>();
    if (low < 0 || high >= head_->options().out)
      core::usage_error(
          kSupervisedComponent,
          fmt::format("label {} among {} classes; every image needs one of them (data.labelled true leaves "
                      "the others out)",
                      low < 0 ? low : high, head_->options().out));
  }

  /// logits of view 1 on all ranks, [N, K].
  void add_generative_term(const torch::Tensor& logits, const StepInput& input, StepOutput& out) {
    ClassEnergy energy(*encoder_, *head_, o_.cut);
    const auto seen = chains_.move(energy, input.images(), input.view1.device(), [&](const auto& samples) {
      return head_->forward(encoder_->forward(samples));
    });
    const auto term = joint_term(logits, seen.outputs, o_.objective.output_l2);
    out.loss = out.loss + o_.objective.lambda * term.loss;
    const double e_data = term.energy_data.item<double>(), e_samples = term.energy_samples.item<double>();
    out.metrics.insert(out.metrics.end(),
                       {{"energy_data", e_data},
                        {"energy_samples", e_samples},
                        {"gap", e_samples - e_data},
                        {"out_of_range", seen.out_of_range},
                        {"chain_age", seen.age},
                        {"sgld_steps", static_cast<double>(ebm::steps_per_visit(o_.sampler))}});
  }

  nn::Norm norm_;
  EbclrOptions o_;
  Chains chains_;
};

}  // namespace

double supervised_units(const MethodOptions& options, int64_t batch) {
  return units_with_chains(options.ebclr, batch);
}

std::unique_ptr<Method> make_supervised(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Supervised>(options, context);
}

}  // namespace ebclr::methods
