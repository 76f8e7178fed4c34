#include "cpu/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ebclr::cpu {
namespace {

/// As ebm::unit_rows.
constexpr float kTiny = 1e-10f;

int padded(int value, int lanes) {
  return (value + lanes - 1) / lanes * lanes;
}

}  // namespace

HeadPass::HeadPass(const EnergyHead& head, const Kernels& kernels, int rows)
    : kernels_(kernels),
      rows_(rows),
      features_(head.layers.front().in),
      dimensions_(head.layers.back().out),
      count_(head.count),
      slope_(head.slope),
      tau_(head.tau),
      norms_(rows) {
  const int lanes = kernels.lanes;
  const auto linear = [&](const HeadLayer& plain) {
    Linear l{plain, padded(plain.in, lanes), padded(plain.out, lanes), {}, {}, {}};
    const std::size_t floats = static_cast<std::size_t>(l.in) * l.out;
    l.there = Buffer(floats);
    l.back = Buffer(floats);
    l.bias = Buffer(l.out);
    if (plain.bias != nullptr) std::copy_n(plain.bias, plain.out, l.bias.data());
    return l;
  };
  std::size_t widest = 0;
  const auto columns = [&](int count) {
    const std::size_t floats = static_cast<std::size_t>(padded(count, lanes)) * rows;
    widest = std::max(widest, floats);
    return floats;
  };
  for (const HeadLayer& layer : head.layers) {
    values_.emplace_back(columns(layer.in));
    linears_.push_back(linear(layer));
  }
  values_.emplace_back(columns(dimensions_));
  unit_references_.resize(static_cast<std::size_t>(count_) * dimensions_);
  for (int m = 0; m < count_; ++m) {
    const float* r = head.references + static_cast<long>(m) * dimensions_;
    double square = 0;
    for (int d = 0; d < dimensions_; ++d) square += static_cast<double>(r[d]) * r[d];
    const float norm = static_cast<float>(std::sqrt(square)) + kTiny;
    float* unit = unit_references_.data() + static_cast<std::size_t>(m) * dimensions_;
    for (int d = 0; d < dimensions_; ++d) unit[d] = r[d] / norm;
  }
  references_ = linear({.in = dimensions_, .out = count_, .weight = unit_references_.data()});
  unit_ = Buffer(columns(dimensions_));
  logits_ = Buffer(columns(count_));
  gradient_ = Buffer(widest);
  other_ = Buffer(widest);
}

void HeadPass::load(const Team& team) {
  const long count = static_cast<long>(linears_.size()) + 1;
  team.deal(2 * count, [&](long item) {
    Linear& l = item / 2 + 1 == count ? references_ : linears_[static_cast<std::size_t>(item / 2)];
    const bool transpose = item % 2 == 1;
    kernels_.pack_rows(l.plain.weight, l.plain.out, l.plain.in, l.out, l.in, transpose, nullptr,
                       (transpose ? l.back : l.there).data());
  });
  team.sync();
}

/// c = a * weights for this thread's panels of output columns.
void HeadPass::apply(const Linear& linear, bool back, const float* a, float* c, const Team& team) const {
  const int lanes = kernels_.lanes;
  const int k = (back ? linear.out : linear.in) / lanes, n = (back ? linear.in : linear.out) / lanes;
  const long first = team.begin(n), last = team.end(n);
  if (first == last) return;
  const float* b = (back ? linear.back : linear.there).data() + first * k * lanes * lanes;
  kernels_.multiply(a, rows_, b, k, static_cast<int>(last - first), c + first * rows_ * lanes);
}

/// z of one row.
void HeadPass::unit_row(int row) const {
  const int lanes = kernels_.lanes;
  const float* f = values_.back().data();
  const auto at = [&](int d) { return (static_cast<long>(d / lanes) * rows_ + row) * lanes + d % lanes; };
  double square = 0;
  for (int d = 0; d < dimensions_; ++d) square += static_cast<double>(f[at(d)]) * f[at(d)];
  norms_[row] = static_cast<float>(std::sqrt(square));
  const float scale = norms_[row] + kTiny;
  for (int d = 0; d < dimensions_; ++d) unit_.data()[at(d)] = f[at(d)] / scale;
}

/// Energy of one row, and its similarities turned into the gradient to them.
void HeadPass::energy_row(int row, float* energies) const {
  const int lanes = kernels_.lanes;
  float* s = logits_.data();
  const auto at = [&](int m) { return (static_cast<long>(m / lanes) * rows_ + row) * lanes + m % lanes; };
  const auto logit = [&](int m) { return static_cast<float>((s[at(m)] * 2.f - 2.f) / tau_); };
  float most = -std::numeric_limits<float>::infinity();
  for (int m = 0; m < count_; ++m) most = std::max(most, logit(m));
  double sum = 0;
  for (int m = 0; m < count_; ++m) {
    const float e = std::exp(logit(m) - most);
    s[at(m)] = e;
    sum += e;
  }
  energies[row] = -(most + static_cast<float>(std::log(sum)));
  const auto factor = static_cast<float>(-2 / (tau_ * sum));
  for (int m = 0; m < count_; ++m) s[at(m)] *= factor;
}

/// From the gradient to z (in gradient_) to that to f, in place: z = f / (|f| + tiny).
void HeadPass::unit_row_gradient(int row) const {
  const int lanes = kernels_.lanes;
  const float* z = unit_.data();
  float* g = gradient_.data();
  const auto at = [&](int d) { return (static_cast<long>(d / lanes) * rows_ + row) * lanes + d % lanes; };
  double along = 0;
  for (int d = 0; d < dimensions_; ++d) along += static_cast<double>(g[at(d)]) * z[at(d)];
  const double scale = norms_[row] + kTiny;
  // |f| grows along f / |f|, which is z * (scale / |f|); nothing where f is zero.
  const double radial = norms_[row] > 0 ? along * scale / norms_[row] : 0;
  for (int d = 0; d < dimensions_; ++d) {
    g[at(d)] = static_cast<float>((g[at(d)] - radial * z[at(d)]) / scale);
  }
}

void HeadPass::run(const float* features, float* energies, float* dfeatures, const Team& team) {
  const int lanes = kernels_.lanes, layers = static_cast<int>(linears_.size());
  const auto row_begin = static_cast<int>(team.begin(rows_)), row_end = static_cast<int>(team.end(rows_));
  const auto at = [&](int row, int c) {
    return (static_cast<long>(c / lanes) * rows_ + row) * lanes + c % lanes;
  };
  for (int row = row_begin; row < row_end; ++row) {
    for (int c = 0; c < features_; ++c) {
      values_[0].data()[at(row, c)] = features[static_cast<long>(row) * features_ + c];
    }
  }
  team.sync();
  for (int i = 0; i < layers; ++i) {
    const Linear& linear = linears_[i];
    float* y = values_[i + 1].data();
    apply(linear, false, values_[i].data(), y, team);
    for (long p = team.begin(linear.out / lanes); p < team.end(linear.out / lanes); ++p) {
      const float* bias = linear.bias.data() + p * lanes;
      for (long k = p * rows_ * lanes; k < (p + 1) * rows_ * lanes; ++k) {
        const float value = y[k] + bias[k % lanes];
        y[k] = i + 1 == layers || value > 0 ? value : value * slope_;
      }
    }
    team.sync();
  }
  for (int row = row_begin; row < row_end; ++row) unit_row(row);
  team.sync();
  apply(references_, false, unit_.data(), logits_.data(), team);
  team.sync();
  for (int row = row_begin; row < row_end; ++row) energy_row(row, energies);
  team.sync();
  apply(references_, true, logits_.data(), gradient_.data(), team);
  team.sync();
  for (int row = row_begin; row < row_end; ++row) unit_row_gradient(row);
  team.sync();
  float *from = gradient_.data(), *to = other_.data();
  for (int i = layers - 1; i >= 0; --i) {
    const Linear& linear = linears_[i];
    apply(linear, true, from, to, team);
    if (i > 0) {
      const float* y = values_[i].data();
      for (long p = team.begin(linear.in / lanes); p < team.end(linear.in / lanes); ++p) {
        for (long k = p * rows_ * lanes; k < (p + 1) * rows_ * lanes; ++k) {
          if (!(y[k] > 0)) to[k] *= slope_;
        }
      }
    }
    team.sync();
    std::swap(from, to);
  }
  for (int row = row_begin; row < row_end; ++row) {
    for (int c = 0; c < features_; ++c) {
      dfeatures[static_cast<long>(row) * features_ + c] = from[at(row, c)];
    }
  }
  team.sync();
}

}  // namespace ebclr::cpu
