// EBCLR, the paper's Algorithms 1 and 2.

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "methods/chains.h"
#include "methods/contrastive_energy.h"
#include "methods/families.h"

namespace ebclr::methods {
namespace {

constexpr std::string_view kEbclrComponent = "methods.ebclr";

/// The balance in effect: the configured one, or the paper's adaptive T, which is a case of it.
ebm::BalanceOptions effective_balance(const EbclrOptions& o) {
  if (!o.adaptive.on) return o.balance;
  if (o.balance.kind != ebm::BalanceKind::kNone)
    core::usage_error(kEbclrComponent, "adaptive.on and balance.kind are both set; choose one");
  return {.kind = ebm::BalanceKind::kSteps,
          .target = o.adaptive.threshold,
          .window = o.adaptive.window,
          .high = static_cast<double>(std::max(o.adaptive.limit, o.sampler.steps)),
          .increment = static_cast<double>(o.adaptive.increment)};
}

class Ebclr : public Method {
 public:
  Ebclr(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks),
        batch_norm_(options.encoder.norm == nn::Norm::kBatch || options.head.hidden_norm ||
                    options.head.output_norm),
        o_(options.ebclr),
        chains_(o_, options.seed, context, kEbclrComponent) {
    // lambda = 0 is plain contrastive learning: no chains, nothing to balance.
    if (!chains_.any()) return;
    const auto balance = effective_balance(o_);
    if (balance.kind == ebm::BalanceKind::kNone) return;
    if (balance.kind == ebm::BalanceKind::kSteps && o_.sampler.kind == ebm::SamplerKind::kYopo)
      core::usage_error(kEbclrComponent, "yopo has no sampler.steps to balance; set sampler.kind msgld");
    logs_balance_ = o_.balance.kind != ebm::BalanceKind::kNone;
    kind_ = balance.kind;
    balance_.emplace(balance, kind_ == ebm::BalanceKind::kStepSize ? o_.sampler.step_size
                              : kind_ == ebm::BalanceKind::kSteps  ? static_cast<double>(o_.sampler.steps)
                                                                   : o_.objective.lambda);
  }

  StepOutput step(const StepInput& input) override {
    const auto n = input.view1.size(0);
    const auto outputs = head_->forward(encoder_->forward(torch::cat({input.view1, input.view2})));
    const auto views = gather({outputs.narrow(0, 0, n), outputs.narrow(0, n, n)}, input.images());
    const auto &f1 = views[0], &f2 = views[1];
    StepOutput out;
    out.projections = f1.detach();
    if (!chains_.any()) {
      const auto objective = ebm::ebclr_objective(f1, f2, {}, o_.objective);
      out.loss = objective.loss;
      out.metrics = {{"disc", objective.discriminative.item<double>()}};
      return out;
    }
    ContrastiveEnergy energy(*encoder_, *head_, ebm::sampler_references(f1, f2, o_.objective.marginal),
                             o_.objective.tau, o_.cut);
    const auto seen = chains_.move(energy, input.images(), input.view1.device(), [&](const auto& samples) {
      return head_->forward(encoder_->forward(samples));
    });
    const auto& fn = seen.outputs;
    const auto objective = ebm::ebclr_objective(f1, f2, fn, o_.objective);
    out.loss = objective.loss;
    const double e_data = objective.energy_data.item<double>(),
                 e_samples = objective.energy_samples.item<double>();
    out.metrics = {{"disc", objective.discriminative.item<double>()},
                   {"energy_data", e_data},
                   {"energy_samples", e_samples},
                   {"gap", e_samples - e_data},
                   {"output_norm", fn.detach().norm(2, 1).mean().item<double>()},
                   {"out_of_range", seen.out_of_range},
                   {"chain_age", seen.age},
                   {"sgld_steps", static_cast<double>(ebm::steps_per_visit(o_.sampler))}};
    if (logs_balance_) {
      out.metrics.emplace_back("step_size", o_.sampler.step_size);
      out.metrics.emplace_back("lambda", o_.objective.lambda);
    }
    last_gap_ = e_samples - e_data;
    return out;
  }

  void after_update(const StepInput&) override {
    chains_.keep();
    if (balance_ && balance_->observe(agreed_gap())) apply_balance();
  }

  nlohmann::json small_state() const override {
    const auto b = balance_ ? balance_->state() : ebm::Balance::State{};
    auto state = chains_.state();
    state.update(
        {{"sgld_steps", o_.sampler.steps}, {"gap_sum", b.sum}, {"gap_count", b.count}, {"balance", b.value}});
    return state;
  }

  void load_small_state(const nlohmann::json& s) override {
    chains_.load(s);
    if (!balance_) return;
    // Checkpoints before there was a balance hold the adapted steps alone.
    const auto steps = static_cast<double>(s.at("sgld_steps").get<int64_t>());
    balance_->restore({.value = s.contains("balance") ? s.at("balance").get<double>() : steps,
                       .sum = s.at("gap_sum").get<double>(),
                       .count = s.at("gap_count").get<int64_t>()});
    apply_balance();
  }

  ebm::ReplayBuffer* buffer() override { return chains_.buffer(); }

  void reseed(uint64_t seed) override { chains_.reseed(seed); }

  double forward_units(int64_t batch) const override { return units_with_chains(o_, batch); }

  // Squared distances of unit rows are at most 4, so that energies lie within 4 / tau of each other.
  std::vector<MetricLimit> limits() const override { return {{"gap", 0.9 * 4 / o_.objective.tau}}; }

  std::vector<std::string> warnings() const override {
    if (!chains_.any() || !batch_norm_) return {};
    return {
        "EBCLR's chains on a network with BatchNorm: samples and images share its statistics, and those that "
        "are kept for evaluation are mostly of samples; encoder.norm none and heads without are safer"};
  }

 private:
  /// Rank 0's: ranks of different machines may see another last digit, and must move the balance alike.
  double agreed_gap() const {
    auto gap = torch::full({1}, last_gap_, torch::kFloat64);
    ranks_->broadcast(gap);
    return gap.item<double>();
  }

  void apply_balance() {
    methods::apply_balance(o_, balance_->value());
    chains_.set_sampler(o_.sampler);
  }

  bool batch_norm_;  // in encoder or head
  EbclrOptions o_;   // as configured, except for what the balance moves
  Chains chains_;
  ebm::BalanceKind kind_ = ebm::BalanceKind::kNone;
  std::optional<ebm::Balance> balance_;
  bool logs_balance_ = false;
  double last_gap_ = 0;
};

}  // namespace

void apply_balance(EbclrOptions& o, double value) {
  const auto kind = effective_balance(o).kind;
  if (kind == ebm::BalanceKind::kStepSize) o.sampler.step_size = value;
  if (kind == ebm::BalanceKind::kSteps)
    o.sampler.steps = std::max<int64_t>(1, static_cast<int64_t>(std::lround(value)));
  if (kind == ebm::BalanceKind::kLambda) o.objective.lambda = value;
}

int64_t chains_of(double chains, int64_t batch) {
  if (chains == 0) return batch;
  if (chains > 0 && chains < 1)
    return std::max<int64_t>(1, std::llround(chains * static_cast<double>(batch)));
  const auto whole = static_cast<int64_t>(chains);
  if (chains < 0 || static_cast<double>(whole) != chains)
    core::usage_error(kEbclrComponent,
                      fmt::format("sampler.chains is {}; expected 0 (one per image), a share "
                                  "of the batch below 1, or a whole number",
                                  chains));
  return whole;
}

int64_t buffer_size_of(int64_t size, double chains, int64_t batch) {
  const auto n = chains_of(chains, batch);
  if (n == batch) return size;
  return std::max<int64_t>(
      n, std::llround(static_cast<double>(size) * static_cast<double>(n) / static_cast<double>(batch)));
}

double ebclr_units(const MethodOptions& options, int64_t batch) {
  return units_with_chains(options.ebclr, batch);
}

std::unique_ptr<Method> make_ebclr(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Ebclr>(options, context);
}

}  // namespace ebclr::methods
