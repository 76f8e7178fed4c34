#include "watch/thinned.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ebclr::watch {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Takes the bucket `from` into the bucket `to`.
void merge(Column& c, size_t to, size_t from) {
  const uint32_t n = c.count[to] + c.count[from];
  if (c.count[from] == 0) return;
  if (c.count[to] == 0) {
    c.mean[to] = c.mean[from], c.low[to] = c.low[from], c.high[to] = c.high[from];
  } else {
    const float share = static_cast<float>(c.count[from]) / static_cast<float>(n);
    c.mean[to] += (c.mean[from] - c.mean[to]) * share;
    c.low[to] = std::min(c.low[to], c.low[from]);
    c.high[to] = std::max(c.high[to], c.high[from]);
  }
  c.count[to] = n;
}

}  // namespace

Thinned::Thinned(size_t most) : most_(std::max<size_t>(4, most / 2 * 2)) {}

Column* Thinned::column(const std::string& name) {
  for (size_t tried = 0; tried < columns_.size(); ++tried) {
    const size_t k = (hint_ + tried) % columns_.size();
    if (columns_[k].name != name) continue;
    hint_ = k + 1;
    return &columns_[k];
  }
  if (columns_.size() == run::kMostMetrics) {
    more_ = true;
    return nullptr;
  }
  // A metric that came late has nothing to show for the time before.
  auto& c = columns_.emplace_back();
  c.name = name;
  c.mean.assign(size(), kNan), c.low.assign(size(), kNan), c.high.assign(size(), kNan);
  c.count.assign(size(), 0);
  ++generation_;
  return &c;
}

void Thinned::add(const run::MetricRecord& r, uint64_t offset) {
  if (step_.empty() || in_last_ >= per_) {
    if (size() >= most_) merge_pairs();
    if (step_.empty() || in_last_ >= per_) {
      for (auto* v : {&step_, &epoch_, &seconds_, &units_}) v->push_back(0);
      offset_.push_back(offset);
      for (auto& c : columns_) {
        c.mean.push_back(kNan), c.low.push_back(kNan), c.high.push_back(kNan);
        c.count.push_back(0);
      }
      in_last_ = 0;
    }
  }
  ++in_last_;
  step_.back() = r.step, epoch_.back() = r.epoch, seconds_.back() = r.seconds;
  units_.back() = r.forward_units;
  more_ |= r.more;
  for (const auto& [name, value] : r.values) {
    Column* const found = column(name);
    if (found == nullptr || !std::isfinite(value)) continue;
    Column& c = *found;
    const auto v = static_cast<float>(value);
    if (c.count.back()++ == 0) {
      c.mean.back() = c.low.back() = c.high.back() = v;
    } else {
      c.mean.back() += (v - c.mean.back()) / static_cast<float>(c.count.back());
      c.low.back() = std::min(c.low.back(), v);
      c.high.back() = std::max(c.high.back(), v);
    }
  }
}

void Thinned::merge_pairs() {
  const size_t half = size() / 2;
  for (size_t i = 0; i < half; ++i) {
    for (auto* v : {&step_, &epoch_, &seconds_, &units_}) (*v)[i] = (*v)[2 * i + 1];
    offset_[i] = offset_[2 * i];
    for (auto& c : columns_) {
      merge(c, 2 * i, 2 * i + 1);
      c.mean[i] = c.mean[2 * i], c.low[i] = c.low[2 * i], c.high[i] = c.high[2 * i];
      c.count[i] = c.count[2 * i];
    }
  }
  for (auto* v : {&step_, &epoch_, &seconds_, &units_}) v->resize(half);
  offset_.resize(half);
  for (auto& c : columns_) c.mean.resize(half), c.low.resize(half), c.high.resize(half), c.count.resize(half);
  per_ *= 2;
  in_last_ = per_;
  ++generation_;
}

void Thinned::clear() {
  const auto generation = generation_ + 1;
  *this = Thinned(most_);
  generation_ = generation;
}

void Thinned::forget_after(double step) {
  size_t keep = size();
  while (keep > 0 && step_[keep - 1] > step) --keep;
  if (keep == size()) return;
  for (auto* v : {&step_, &epoch_, &seconds_, &units_}) v->resize(keep);
  offset_.resize(keep);
  for (auto& c : columns_) c.mean.resize(keep), c.low.resize(keep), c.high.resize(keep), c.count.resize(keep);
  in_last_ = per_;
  ++generation_;
}

size_t Thinned::bytes() const {
  size_t out = (4 * sizeof(double) + sizeof(uint64_t)) * step_.capacity();
  for (const auto& c : columns_) out += (3 * sizeof(float) + sizeof(uint32_t)) * c.mean.capacity();
  return out;
}

}  // namespace ebclr::watch
