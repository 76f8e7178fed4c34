#include "train/guard.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>

namespace ebclr::train {

namespace {

// A number is not finite when all bits of its exponent are set.
template <class Word>
bool all_finite(const Word* p, size_t count, Word exponent) {
  // Blocks without a branch inside compile to vector code.
  constexpr size_t kBlock = 4096;
  for (size_t at = 0; at < count; at += kBlock) {
    unsigned bad = 0;
    for (size_t i = at; i < std::min(count, at + kBlock); ++i) bad |= (p[i] & exponent) == exponent;
    if (bad) return false;
  }
  return true;
}

bool all_finite(const torch::Tensor& tensor) {
  const auto t = tensor.detach().to(torch::kCPU).contiguous();
  const auto count = static_cast<size_t>(t.numel());
  switch (t.scalar_type()) {
    case torch::kFloat32:
      return all_finite(static_cast<const uint32_t*>(t.data_ptr()), count, 0x7f800000u);
    case torch::kFloat64:
      return all_finite(static_cast<const uint64_t*>(t.data_ptr()), count, uint64_t{0x7ff0000000000000});
    case torch::kFloat16:
      return all_finite(static_cast<const uint16_t*>(t.data_ptr()), count, uint16_t{0x7c00});
    case torch::kBFloat16:
      return all_finite(static_cast<const uint16_t*>(t.data_ptr()), count, uint16_t{0x7f80});
    default:
      return true;  // whole numbers
  }
}

double healthy_spread(const Signs& signs) {
  return 1 / std::sqrt(static_cast<double>(signs.projection_dim));
}

std::string collapse_text(const Signs& signs) {
  return fmt::format("projections have collapsed: their spread {:.2g} is far below 1/sqrt({}) = {:.2g}",
                     *signs.spread, signs.projection_dim, healthy_spread(signs));
}

}  // namespace

std::optional<std::string> unsound(const run::Snapshot& snapshot) {
  for (const auto* part : {&snapshot.tensors, &snapshot.buffer})
    for (const auto& [name, tensor] : part->tensors)
      if (!all_finite(tensor)) return fmt::format("{} is not finite", name);
  return std::nullopt;
}

Guard::Guard(const run::Config& config, std::vector<methods::MetricLimit> limits, int64_t steps_per_epoch)
    : options_(config.guard),
      limits_(std::move(limits)),
      healthy_(std::min(config.guard.healthy, std::max<int64_t>(1, steps_per_epoch))),
      keep_last_(config.checkpoint.keep_last) {
  for (auto& limit : limits_)
    if (limit.metric == "gap" && options_.max_gap > 0) limit.value = options_.max_gap;
}

std::optional<std::string> Guard::fault(const Signs& signs) const {
  if (!std::isfinite(signs.loss)) return "the loss is not finite";
  for (const auto& [name, value] : signs.metrics) {
    if (!std::isfinite(value)) return fmt::format("{} is not finite", name);
    for (const auto& limit : limits_)
      if (name == limit.metric && std::abs(value) > limit.value)
        return fmt::format("the energy {} {:.3g} ran away (limit {:.3g})", name, value, limit.value);
    if (name == "output_norm" && value > options_.max_output_norm)
      return fmt::format("the output norm {:.3g} ran away (limit {:.3g})", value, options_.max_output_norm);
  }
  // Later it is a warning: what was learnt until then may be worth having.
  if (signs.position.epoch < options_.collapse_epochs && collapsed(signs, 0.1)) return collapse_text(signs);
  if (!signs.grad_norm) return std::nullopt;
  if (!std::isfinite(*signs.grad_norm)) return "the gradient is not finite";
  if (*signs.grad_norm > options_.max_grad_norm)
    return fmt::format("the gradient norm {:.3g} ran away (limit {:.3g})", *signs.grad_norm,
                       options_.max_grad_norm);
  return std::nullopt;
}

// An untrained norm-free network starts with little spread, so only a fall counts, to this part of the widest
// so far. For a fault it must be a deep one: small networks halve their spread and recover. In the first
// epoch a fifth of that: a start dips (to 0.0056 of 0.03 and back), where one that is lost falls by a hundred
// within ten steps.
bool Guard::collapsed(const Signs& signs, double fall) const {
  const double depth = signs.position.epoch > 0 ? fall : fall / 5;
  return signs.spread && *signs.spread < options_.collapse * healthy_spread(signs) &&
         *signs.spread < depth * widest_spread_;
}

std::optional<std::string> Guard::warning(const Signs& signs) {
  if (!signs.spread) return std::nullopt;
  widest_spread_ = std::max(widest_spread_, *signs.spread);
  if (*signs.spread > 2 * options_.collapse * healthy_spread(signs)) collapse_warned_ = false;
  if (!collapsed(signs, 0.5) || collapse_warned_) return std::nullopt;
  collapse_warned_ = true;
  return fmt::format("step {}: {}", signs.position.step, collapse_text(signs));
}

void Guard::kept(const run::Position& after) {
  while (!candidates_.empty() && candidates_.front().step + healthy_ <= after.step) {
    good_ = candidates_.front();
    candidates_.pop_front();
  }
  // Counted from the furthest fault, so that a run that goes back again and again cannot go on for ever.
  if (tries_ > 0 && after.step >= failed_step_ + options_.recover) tries_ = 0;
}

void Guard::saved(const run::CheckpointId& id) {
  if (good_) {
    candidates_.push_back(id);
    trim();
  } else {
    good_ = id;  // the first one: there is nothing better
  }
}

// Of those between the oldest candidate and the newest ones, the writer keeps none.
void Guard::trim() {
  while (candidates_.size() > static_cast<size_t>(keep_last_) + 1) candidates_.erase(candidates_.begin() + 1);
}

void Guard::resumed(const run::CheckpointId& id, const std::vector<run::CheckpointId>& earlier) {
  good_.reset();
  candidates_.clear();
  for (const auto& e : earlier)
    if (e.rollbacks == id.rollbacks && e < id) saved(e);
  saved(id);
  kept({.step = id.step});
}

std::vector<run::CheckpointId> Guard::protect() const {
  std::vector<run::CheckpointId> ids;
  if (good_) ids.push_back(*good_);
  if (!candidates_.empty()) ids.push_back(candidates_.front());
  return ids;
}

void Guard::rolled_back(const run::Position& failed, const run::CheckpointId& id) {
  ++tries_;
  lr_scale_ *= options_.lr_factor;
  failed_step_ = std::max(failed_step_, failed.step + 1);
  good_ = id;  // what was good stays so
  candidates_.clear();
}

// Which checkpoints are good is no part of it: that follows from the files, and an interruption makes one
// more.
nlohmann::json Guard::state() const {
  return {{"tries", tries_}, {"failed_step", failed_step_}, {"widest_spread", widest_spread_}};
}

void Guard::load_state(const nlohmann::json& small, const run::Position& position) {
  lr_scale_ = small.at("lr_scale").get<double>();
  tries_ = position.rollbacks;  // checkpoints of version 1 know no more
  failed_step_ = position.step;
  if (!small.contains("guard")) return;
  tries_ = small.at("guard").at("tries").get<int64_t>();
  failed_step_ = small.at("guard").at("failed_step").get<int64_t>();
  widest_spread_ = small.at("guard").value("widest_spread", 0.0);
}

}  // namespace ebclr::train
