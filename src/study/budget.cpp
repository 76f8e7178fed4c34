#include "study/budget.h"

#include <algorithm>
#include <limits>

namespace ebclr::study {
namespace {

// Whole epochs do not divide a budget evenly, and no clock runs twice alike: so much over it is within it.
double slack(Currency currency) {
  return currency == Currency::kSeconds ? 0.05 : currency == Currency::kForwardUnits ? 0.02 : 1e-9;
}

/// The curves of a cell, by seed.
using Curves = std::vector<std::pair<size_t, const std::vector<eval::CurvePoint>*>>;

Curves curves_of(const Results& r, const PlannedCell& cell, const std::string& judge) {
  Curves out;
  for (size_t seed = 0; seed < cell.runs.size(); ++seed) {
    const auto& curves = r.findings[cell.runs[seed]].curves;
    if (const auto c = curves.find(curve_name(judge, cell.on)); c != curves.end() && !c->second.empty())
      out.emplace_back(seed, &c->second);
  }
  return out;
}

/// What a cell has spent at a point of its curves.
class Cost {
 public:
  Cost(const Curves& curves, Currency currency) : currency_(currency) {
    std::vector<const std::vector<eval::CurvePoint>*> all;
    for (const auto& [seed, curve] : curves) all.push_back(curve);
    seconds_per_unit_ = quickest_pace(all);
  }
  double at(const eval::CurvePoint& p) const {
    switch (currency_) {
      case Currency::kEpochs:
        return p.epoch;
      case Currency::kForwardUnits:
        return p.forward_units;
      case Currency::kSeconds:
        return p.forward_units > 0 ? p.forward_units * seconds_per_unit_ : p.seconds;
    }
    return 0;
  }

 private:
  Currency currency_;
  double seconds_per_unit_;
};

double cost_of(const Curves& curves, Currency currency) {
  const Cost cost(curves, currency);
  double dearest = 0;
  for (const auto& [seed, curve] : curves) dearest = std::max(dearest, cost.at(curve->back()));
  return dearest;
}

std::optional<Budget::Entry> read_at(const Curves& curves, double budget, Currency currency) {
  const Cost cost(curves, currency);
  Budget::Entry out{.used = std::numeric_limits<double>::infinity()};
  for (const auto& [seed, curve] : curves) {
    const eval::CurvePoint* at = nullptr;
    for (const auto& p : *curve)
      if (p.epoch > 0 && cost.at(p) <= budget * (1 + slack(currency))) at = &p;
    if (!at) return std::nullopt;  // the untrained encoder is no result of training
    out.score.values.push_back(100 * at->accuracy);
    out.score.seeds.push_back(seed);
    out.score.total = at->total;
    out.used = std::min(out.used, cost.at(*at) / budget);
  }
  if (curves.empty()) return std::nullopt;
  return out;
}

void settle_all(const std::vector<Budget::Entry*>& entries, size_t seeds) {
  std::vector<Estimate*> estimates;
  for (auto* e : entries) estimates.push_back(&e->score);
  settle(estimates, seeds);
}

}  // namespace

Budget equal_budget(const Results& r, const std::string& column, const std::string& judge,
                    Currency currency) {
  Budget out{.spent = std::numeric_limits<double>::infinity()};
  std::map<std::string, Curves> curves;
  for (const auto& cell : r.plan.cells) {
    if (cell.id.column != column) continue;
    auto found = curves_of(r, cell, judge);
    if (found.empty()) continue;
    out.spent = std::min(out.spent, cost_of(found, currency));
    curves[cell.id.row] = std::move(found);
  }
  if (curves.empty() || !(out.spent > 0)) return {};
  std::vector<Budget::Entry*> entries;
  for (const auto& [row, c] : curves)
    if (auto entry = read_at(c, out.spent, currency)) out.rows[row] = std::move(*entry);
  for (auto& [row, entry] : out.rows) entries.push_back(&entry);
  settle_all(entries, static_cast<size_t>(r.plan.seeds));
  return out;
}

std::optional<std::pair<Budget::Entry, Budget::Entry>> at_equal_cost(
    const Results& r, const std::string& column, const std::string& a, const std::string& b,
    const std::string& judge, Currency currency) {
  const auto *first = r.plan.find({a, column}), *second = r.plan.find({b, column});
  if (!first || !second) return std::nullopt;
  const auto x = curves_of(r, *first, judge), y = curves_of(r, *second, judge);
  if (x.empty() || y.empty()) return std::nullopt;
  const double budget = std::min(cost_of(x, currency), cost_of(y, currency));
  auto at_x = read_at(x, budget, currency), at_y = read_at(y, budget, currency);
  if (!at_x || !at_y) return std::nullopt;
  settle_all({&*at_x, &*at_y}, static_cast<size_t>(r.plan.seeds));
  return std::pair{std::move(*at_x), std::move(*at_y)};
}

}  // namespace ebclr::study
