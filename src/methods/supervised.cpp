// Learning from labels: cross entropy of a linear head over both views, and as an option JEM's joint
// objective (Grathwohl et al., 2020), in which the same logits are an energy of images too.

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "methods/contrastive_energy.h"
#include "methods/families.h"
#include "methods/losses.h"

namespace ebclr::methods {
namespace {

constexpr std::string_view kSupervisedComponent = "methods.supervised";

/// Energies of a sane classifier stay within tens of each other; beyond this the chains have run away.
constexpr double kMaxGap = 100;

/// Two views forward (2) and backward (4); for each chain sampling, a forward (1) and a backward (2).
double units_with_labels(const EbclrOptions& o, int64_t batch) {
  if (o.objective.lambda == 0) return 6;
  const double share = static_cast<double>(chains_of(o.chains, batch)) / static_cast<double>(batch);
  return 6 + share * (ebm::sampler_units(o.sampler) + 3);
}

class Supervised : public Method {
 public:
  Supervised(const MethodOptions& options, const MethodContext& context)
      : Method(options, context.ranks),
        norm_(options.encoder.norm),
        o_(options.ebclr),
        chain_rng_(options.seed, core::Stream::kChains),
        noise_(core::make_key({options.seed, static_cast<uint64_t>(core::Stream::kLangevin)})) {
    if (!joint()) return;
    if (o_.adaptive.on || o_.balance.kind != ebm::BalanceKind::kNone)
      core::usage_error(kSupervisedComponent, "adaptive.on and balance.kind belong to ebclr; leave them out");
    propose_ =
        o_.proposal == Proposal::kData ? context.data_proposals : ebm::uniform_proposals(context.image_shape);
    sampler_ = context.make_sampler(o_.sampler);
    auto buffer = o_.buffer;
    if (o_.chains > 0) buffer.size = buffer_size_of(o_.buffer.size, o_.chains, context.batch);
    if (context.batch > 0 && chains_of(o_.chains, context.batch) < ranks_->world())
      core::usage_error(kSupervisedComponent,
                        fmt::format("{} chains a step cannot be shared by {} ranks; raise sampler.chains",
                                    chains_of(o_.chains, context.batch), ranks_->world()));
    buffer_ = std::make_unique<ebm::ReplayBuffer>(buffer, context.image_shape, propose_, chain_rng_, ranks_);
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

  void after_update(const StepInput&) override {
    if (buffer_) buffer_->put(picked_, samples_);
  }

  nlohmann::json small_state() const override {
    return {{"chain_key", chain_rng_.key()},
            {"chain_counter", chain_rng_.counter()},
            {"noise_key", noise_.key()},
            {"noise_counter", noise_.counter()}};
  }
  void load_small_state(const nlohmann::json& s) override {
    chain_rng_ = core::Rng(s.at("chain_key").get<uint64_t>(), s.at("chain_counter").get<uint64_t>());
    noise_ = ebm::CounterNoise(s.at("noise_key").get<uint64_t>(), s.at("noise_counter").get<uint64_t>());
  }

  ebm::ReplayBuffer* buffer() override { return buffer_.get(); }

  void reseed(uint64_t seed) override {
    chain_rng_ = core::Rng(seed, core::Stream::kChains);
    noise_ = ebm::CounterNoise(core::make_key({seed, static_cast<uint64_t>(core::Stream::kLangevin)}));
    if (buffer_) buffer_->reset(propose_, chain_rng_);
  }

  double forward_units(int64_t batch) const override { return units_with_labels(o_, batch); }

  std::vector<MetricLimit> limits() const override { return {{"gap", kMaxGap}}; }

  std::vector<std::string> warnings() const override {
    if (!joint() || norm_ != nn::Norm::kBatch) return {};
    return {
        "the joint objective on an encoder with BatchNorm: samples and images share its statistics, which "
        "tends to diverge; an encoder without (method.name ebclr) is safer"};
  }

 private:
  bool joint() const { return o_.objective.lambda > 0; }

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
    const int64_t chains = chains_of(o_.chains, input.images());
    picked_ = buffer_->pick(chains, propose_, chain_rng_);
    ClassEnergy energy(*encoder_, *head_, o_.cut);
    ebm::RowsNoise noise(noise_, ranks_->share(chains).first, chains);
    samples_ = sampler_->run(energy, picked_.chains.to(input.view1.device()), picked_.counts, noise).chains;
    // Of each chain its logits, its share of pixels out of range, its visits.
    const auto seen = gather({head_->forward(encoder_->forward(samples_)),
                              samples_.abs().gt(1).to(torch::kFloat32).flatten(1).mean(1, true),
                              picked_.counts.to(samples_.options()).unsqueeze(1)},
                             chains);
    const auto term = joint_term(logits, seen[0], o_.objective.output_l2);
    out.loss = out.loss + o_.objective.lambda * term.loss;
    const double e_data = term.energy_data.item<double>(), e_samples = term.energy_samples.item<double>();
    out.metrics.insert(out.metrics.end(), {{"energy_data", e_data},
                                           {"energy_samples", e_samples},
                                           {"gap", e_samples - e_data},
                                           {"out_of_range", seen[1].detach().mean().item<double>()},
                                           {"chain_age", seen[2].detach().mean().item<double>()},
                                           {"sgld_steps", static_cast<double>(o_.sampler.steps)}});
  }

  nn::Norm norm_;
  EbclrOptions o_;
  ebm::ProposalSource propose_;
  core::Rng chain_rng_;
  ebm::CounterNoise noise_;
  std::unique_ptr<ebm::Sampler> sampler_;
  std::unique_ptr<ebm::ReplayBuffer> buffer_;
  ebm::PickedChains picked_;
  torch::Tensor samples_;
};

}  // namespace

double supervised_units(const MethodOptions& options, int64_t batch) {
  return units_with_labels(options.ebclr, batch);
}

std::unique_ptr<Method> make_supervised(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Supervised>(options, context);
}

}  // namespace ebclr::methods
