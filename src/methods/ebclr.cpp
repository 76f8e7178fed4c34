// EBCLR, the paper's Algorithms 1 and 2.

#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "methods/contrastive_energy.h"
#include "methods/families.h"

namespace ebclr::methods {
namespace {

class Ebclr : public Method {
 public:
  Ebclr(const MethodOptions& options, const MethodContext& context)
      : Method(options),
        o_(options.ebclr),
        propose_(o_.proposal == Proposal::kData ? context.data_proposals
                                                : uniform_proposals(context.image_shape)),
        chain_rng_(options.seed, core::Stream::kChains),
        noise_(core::make_key({options.seed, static_cast<uint64_t>(core::Stream::kLangevin)})) {
    sampler_ = ebm::make_sampler(o_.sampler);
    // lambda = 0 is plain contrastive learning: no chains, no sampling.
    if (o_.objective.lambda == 0) return;
    buffer_ = std::make_unique<ebm::ReplayBuffer>(o_.buffer, context.image_shape, propose_, chain_rng_);
  }

  StepOutput step(const StepInput& input) override {
    const auto n = input.view1.size(0);
    const auto outputs = head_->forward(encoder_->forward(torch::cat({input.view1, input.view2})));
    const auto f1 = outputs.narrow(0, 0, n), f2 = outputs.narrow(0, n, n);
    StepOutput out;
    out.projections = f1.detach();
    if (!buffer_) {
      const auto objective = ebm::ebclr_objective(f1, f2, {}, o_.objective);
      out.loss = objective.loss;
      out.metrics = {{"disc", objective.discriminative.item<double>()}};
      return out;
    }
    picked_ = buffer_->pick(n, propose_, chain_rng_);
    ContrastiveEnergy energy(*encoder_, *head_, ebm::sampler_references(f1, f2, o_.objective.marginal),
                             o_.objective.tau, o_.cut);
    samples_ = sampler_->run(energy, picked_.chains.to(input.view1.device()), picked_.counts, noise_).chains;
    const auto fn = head_->forward(encoder_->forward(samples_));
    const auto objective = ebm::ebclr_objective(f1, f2, fn, o_.objective);
    out.loss = objective.loss;
    const double e_data = objective.energy_data.item<double>(),
                 e_samples = objective.energy_samples.item<double>();
    out.metrics = {{"disc", objective.discriminative.item<double>()},
                   {"energy_data", e_data},
                   {"energy_samples", e_samples},
                   {"gap", e_samples - e_data},
                   {"output_norm", fn.detach().norm(2, 1).mean().item<double>()},
                   {"out_of_range", samples_.abs().gt(1).to(torch::kFloat32).mean().item<double>()},
                   {"chain_age", picked_.counts.to(torch::kFloat32).mean().item<double>()},
                   {"sgld_steps", static_cast<double>(o_.sampler.steps)}};
    last_gap_ = e_samples - e_data;
    return out;
  }

  void after_update(const StepInput&) override {
    if (!buffer_) return;
    buffer_->put(picked_, samples_);
    adapt();
  }

  nlohmann::json small_state() const override {
    return {{"chain_key", chain_rng_.key()},  {"chain_counter", chain_rng_.counter()},
            {"noise_key", noise_.key()},      {"noise_counter", noise_.counter()},
            {"sgld_steps", o_.sampler.steps}, {"gap_sum", gap_sum_},
            {"gap_count", gap_count_}};
  }

  void load_small_state(const nlohmann::json& s) override {
    chain_rng_ = core::Rng(s.at("chain_key").get<uint64_t>(), s.at("chain_counter").get<uint64_t>());
    noise_ = ebm::CounterNoise(s.at("noise_key").get<uint64_t>(), s.at("noise_counter").get<uint64_t>());
    o_.sampler.steps = s.at("sgld_steps").get<int64_t>();
    gap_sum_ = s.at("gap_sum").get<double>();
    gap_count_ = s.at("gap_count").get<int64_t>();
    sampler_ = ebm::make_sampler(o_.sampler);
  }

  ebm::ReplayBuffer* buffer() override { return buffer_.get(); }

  void reseed(uint64_t seed) override {
    chain_rng_ = core::Rng(seed, core::Stream::kChains);
    noise_ = ebm::CounterNoise(core::make_key({seed, static_cast<uint64_t>(core::Stream::kLangevin)}));
    if (buffer_) buffer_->reset(propose_, chain_rng_);
  }

  // Two views forward (2), sampling, samples forward (1), backward of all three (2 each).
  double forward_units() const override { return buffer_ ? 2 + sampler_->forward_units() + 1 + 6 : 6; }

 private:
  static ebm::ProposalSource uniform_proposals(std::vector<int64_t> shape) {
    return [shape](int64_t n, core::Rng& rng) {
      std::vector<int64_t> sizes = {n};
      sizes.insert(sizes.end(), shape.begin(), shape.end());
      auto t = torch::empty(sizes, torch::kFloat32);
      float* p = t.data_ptr<float>();
      for (int64_t i = 0; i < t.numel(); ++i) p[i] = rng.uniform(-1.0f, 1.0f);
      return t;
    };
  }

  // The paper's rule for long runs: more SGLD steps when chains stay above the energy of data.
  void adapt() {
    if (!o_.adaptive.on) return;
    gap_sum_ += last_gap_;
    if (++gap_count_ < o_.adaptive.window) return;
    const double mean = gap_sum_ / static_cast<double>(gap_count_);
    gap_sum_ = 0;
    gap_count_ = 0;
    if (mean <= o_.adaptive.threshold || o_.sampler.steps >= o_.adaptive.limit) return;
    o_.sampler.steps = std::min(o_.sampler.steps + o_.adaptive.increment, o_.adaptive.limit);
    sampler_ = ebm::make_sampler(o_.sampler);
  }

  EbclrOptions o_;
  ebm::ProposalSource propose_;
  core::Rng chain_rng_;
  ebm::CounterNoise noise_;
  std::unique_ptr<ebm::Sampler> sampler_;
  std::unique_ptr<ebm::ReplayBuffer> buffer_;
  ebm::PickedChains picked_;
  torch::Tensor samples_;
  double last_gap_ = 0, gap_sum_ = 0;
  int64_t gap_count_ = 0;
};

}  // namespace

std::unique_ptr<Method> make_ebclr(const MethodOptions& options, const MethodContext& context) {
  return std::make_unique<Ebclr>(options, context);
}

}  // namespace ebclr::methods
