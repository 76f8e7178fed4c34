#include "methods/chains.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ebclr::methods {
namespace {

/// One of YOPO's inner steps after the first, there and back through what comes before the cut, by the
/// products of the layers there (cpu/cost.h, 32x32 images): the stem, or the stem and the first stage.
constexpr double kInnerUnits[] = {0.03, 0.5};

ebm::CounterNoise langevin_noise(uint64_t seed) {
  return ebm::CounterNoise(core::make_key({seed, static_cast<uint64_t>(core::Stream::kLangevin)}));
}

}  // namespace

double units_with_chains(const EbclrOptions& o, int64_t batch) {
  if (o.objective.lambda == 0) return 6;
  const double share = static_cast<double>(chains_of(o.chains, batch)) / static_cast<double>(batch);
  auto sampler = o.sampler;
  sampler.inner_units = kInnerUnits[o.cut == 0 ? 0 : 1];
  return 6 + share * (ebm::sampler_units(sampler) + 3);
}

Chains::Chains(const EbclrOptions& o, uint64_t seed, const MethodContext& context, std::string_view component)
    : share_(o.chains),
      ranks_(context.ranks),
      propose_(o.proposal == Proposal::kData ? context.data_proposals
                                             : ebm::uniform_proposals(context.image_shape)),
      make_sampler_(context.make_sampler),
      rng_(seed, core::Stream::kChains),
      noise_(langevin_noise(seed)),
      sampler_(make_sampler_(o.sampler)) {
  if (o.objective.lambda == 0) return;
  auto buffer = o.buffer;
  if (o.chains > 0) {
    TORCH_INTERNAL_ASSERT(context.batch > 0, "sampler.chains needs the batch size");
    buffer.size = buffer_size_of(o.buffer.size, o.chains, context.batch);
  }
  if (context.batch > 0 && chains_of(o.chains, context.batch) < ranks_->world())
    core::usage_error(component,
                      fmt::format("{} chains a step cannot be shared by {} ranks; raise sampler.chains",
                                  chains_of(o.chains, context.batch), ranks_->world()));
  buffer_ = std::make_unique<ebm::ReplayBuffer>(buffer, context.image_shape, propose_, rng_, ranks_);
}

Chains::Seen Chains::move(ebm::Energy& energy, int64_t images, torch::Device device,
                          const std::function<torch::Tensor(const torch::Tensor&)>& outputs) {
  const int64_t chains = chains_of(share_, images);
  picked_ = buffer_->pick(chains, propose_, rng_);
  ebm::RowsNoise noise(noise_, ranks_->share(chains).first, chains);
  samples_ = sampler_->run(energy, picked_.chains.to(device), picked_.counts, noise).chains;
  // Of each chain its output, its pixels out of range, its visits.
  const auto seen = dist::gather_for_loss(
      *ranks_,
      {outputs(samples_), samples_.abs().gt(1).to(torch::kFloat32).flatten(1).sum(1, true),
       picked_.counts.to(samples_.options()).unsqueeze(1)},
      chains);
  const int64_t pixels = samples_.numel() / samples_.size(0) * chains;
  return {.outputs = seen[0],
          .out_of_range = (seen[1].detach().sum() / static_cast<double>(pixels)).item<double>(),
          .age = seen[2].detach().mean().item<double>()};
}

void Chains::keep() {
  if (buffer_) buffer_->put(picked_, samples_);
}

void Chains::reseed(uint64_t seed) {
  rng_ = core::Rng(seed, core::Stream::kChains);
  noise_ = langevin_noise(seed);
  if (buffer_) buffer_->reset(propose_, rng_);
}

nlohmann::json Chains::state() const {
  return {{"chain_key", rng_.key()},
          {"chain_counter", rng_.counter()},
          {"noise_key", noise_.key()},
          {"noise_counter", noise_.counter()}};
}

void Chains::load(const nlohmann::json& s) {
  rng_ = core::Rng(s.at("chain_key").get<uint64_t>(), s.at("chain_counter").get<uint64_t>());
  noise_ = ebm::CounterNoise(s.at("noise_key").get<uint64_t>(), s.at("noise_counter").get<uint64_t>());
}

}  // namespace ebclr::methods
