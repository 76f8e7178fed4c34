#include "study/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/text.h"
#include "eval/curve.h"
#include "eval/metrics.h"

namespace ebclr::study {
namespace {

double mean_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return v.empty() ? 0 : sum / static_cast<double>(v.size());
}

// Seeds are few, so their spread is taken as common to all cells of a study: the squares of all cells
// together, over the degrees of freedom of all.
struct Pool {
  double squares = 0;
  int degrees = 0;
  void add(const std::vector<double>& values) {
    if (values.size() < 2) return;
    const double m = mean_of(values);
    for (double v : values) squares += (v - m) * (v - m);
    degrees += static_cast<int>(values.size()) - 1;
  }
  // What is left of cells that share their seeds once each cell's and each seed's mean is taken off.
  void add_block(const std::vector<const std::vector<double>*>& cells) {
    if (cells.size() < 2) return;
    const size_t seeds = cells[0]->size();
    std::vector<double> seed_means(seeds);
    for (const auto* cell : cells)
      for (size_t i = 0; i < seeds; ++i) seed_means[i] += (*cell)[i] / static_cast<double>(cells.size());
    const double all = mean_of(seed_means);
    for (const auto* cell : cells) {
      const double m = mean_of(*cell);
      for (size_t i = 0; i < seeds; ++i) {
        const double rest = (*cell)[i] - m - seed_means[i] + all;
        squares += rest * rest;
      }
    }
    degrees += static_cast<int>((cells.size() - 1) * (seeds - 1));
  }
  double variance() const { return degrees > 0 ? squares / degrees : 0; }
};
using Pools = std::map<std::string, Pool>;

// Spread of differences between cells of one column, by judge. A seed decides first weights, images, order
// and views of all of them alike, and what it does to all is no part of a difference.
Pools paired_pools(const Results& r) {
  std::map<std::pair<std::string, std::string>, std::vector<const std::vector<double>*>> blocks;
  for (const auto& [id, cell] : r.cells)
    for (const auto& [judge, e] : cell.score)
      if (e.values.size() == static_cast<size_t>(r.plan.seeds) && e.values.size() > 1)
        blocks[{judge, id.column}].push_back(&e.values);
  Pools pools;
  for (const auto& [key, cells] : blocks) pools[key.first].add_block(cells);
  return pools;
}

// Cells of several methods may share one untrained encoder: equal values are counted once.
Pools untrained_pools(const Results& r) {
  std::map<std::string, std::set<std::vector<double>>> different;
  for (const auto& [id, cell] : r.cells)
    for (const auto& [judge, e] : cell.untrained) different[judge].insert(e.values);
  Pools pools;
  for (const auto& [judge, all] : different)
    for (const auto& values : all) pools[judge].add(values);
  return pools;
}

void settle(Estimate& e, const Pool& pool, int64_t total) {
  e.mean = mean_of(e.values);
  e.over_seeds = pool.degrees > 0;
  if (e.over_seeds) {
    e.variance = pool.variance() / static_cast<double>(e.values.size());
    const double half = student_t(pool.degrees) * std::sqrt(e.variance);
    e.low = e.mean - half;
    e.high = e.mean + half;
  } else if (total > 0) {
    const auto correct = static_cast<int64_t>(std::llround(e.mean / 100 * static_cast<double>(total)));
    const auto interval = eval::wilson(correct, total);
    e.low = 100 * interval.low;
    e.high = 100 * interval.high;
    const double p = e.mean / 100;
    e.variance = 1e4 * p * (1 - p) / static_cast<double>(total);
  } else {
    e.low = e.high = e.mean;
  }
}

std::string problem_of(const RunSpec& spec, const Findings& f, const std::string& failure) {
  if (!failure.empty()) return "failed: " + failure;
  if (!spec.blocked.empty()) return spec.blocked;
  return complete(spec, f) ? "" : "not finished";
}

void put(std::map<std::string, Estimate>& map, const std::string& judge, size_t seed, double value) {
  map[judge].values.push_back(value);
  map[judge].seeds.push_back(seed);
}

CellResult collect_cell(const Results& r, const PlannedCell& cell, std::map<std::string, int64_t>& totals) {
  CellResult c;
  c.id = cell.id;
  c.on = cell.on;
  std::vector<double> seconds, units;
  for (size_t seed = 0; seed < cell.runs.size(); ++seed) {
    const size_t i = cell.runs[seed];
    const auto& f = r.findings[i];
    const auto& spec = r.plan.runs[i];
    const auto problem = problem_of(spec, f, r.failures[i]);
    if (!problem.empty()) {
      c.problems.push_back(problem);
      ++c.lost;
    }
    c.rollbacks += f.rollbacks;
    if (!f.trained) continue;
    c.epochs = f.epochs;
    seconds.push_back(f.seconds);
    units.push_back(f.forward_units);
    for (const auto& judge : spec.judges) {
      const auto curve = f.curves.find(curve_name(judge, cell.on));
      if (curve == f.curves.end()) continue;
      put(c.score, judge, seed, 100 * curve->second.back().accuracy);
      put(c.untrained, judge, seed, 100 * curve->second.front().accuracy);
      totals[judge] = curve->second.back().total;
    }
    for (const auto& [judge, d] : f.distances) put(c.score, judge, seed, d.distance);
  }
  c.seconds = mean_of(seconds);
  c.forward_units = mean_of(units);
  return c;
}

// The mean of both ends; nothing where one seed has nothing.
std::optional<eval::Bracket> mean_bracket(const std::vector<eval::Efficiency>& seeds,
                                          std::optional<eval::Bracket> eval::Efficiency::*which) {
  if (seeds.empty()) return std::nullopt;
  eval::Bracket sum;
  for (const auto& e : seeds) {
    const auto& b = e.*which;
    if (!b) return std::nullopt;
    sum.low += b->low;
    sum.high += b->high;
  }
  const auto n = static_cast<double>(seeds.size());
  return eval::Bracket{sum.low / n, sum.high / n};
}

CellEfficiency efficiency_of(const Results& r, const PlannedCell& cell, const PlannedCell& reference,
                             const std::string& judge) {
  CellEfficiency out;
  for (size_t i = 0; i < std::min(cell.runs.size(), reference.runs.size()); ++i) {
    const auto& mine = r.findings[cell.runs[i]].curves;
    const auto& theirs = r.findings[reference.runs[i]].curves;
    const auto a = mine.find(curve_name(judge, cell.on)), b = theirs.find(curve_name(judge, reference.on));
    if (a == mine.end() || b == theirs.end()) continue;
    out.by_seed.push_back(eval::relative_efficiency(b->second, a->second));
    if (out.void_because.empty()) out.void_because = out.by_seed.back().void_because;
  }
  if (!out.void_because.empty()) return out;
  // What one seed's test images cannot tell apart, the seeds together may not either.
  const auto& score = r.cells.at(cell.id).score.at(judge);
  const auto& mine = r.cells.at(cell.id);
  const auto& theirs = r.cells.at(reference.id);
  for (const auto* from : {&mine, &theirs}) {
    const auto before = from->untrained.find(judge);
    if (before == from->untrained.end()) continue;
    const auto d = difference(r, judge, score, before->second);
    if (d.value > d.half()) continue;
    out.void_because = from == &mine ? "it learnt nothing that can be told from the spread of seeds"
                                     : "the reference before training is not clearly below it";
    return out;
  }
  out.epochs = mean_bracket(out.by_seed, &eval::Efficiency::epochs);
  out.seconds = mean_bracket(out.by_seed, &eval::Efficiency::seconds);
  out.forward_units = mean_bracket(out.by_seed, &eval::Efficiency::forward_units);
  return out;
}

double spent_at(const eval::CurvePoint& p, Currency currency) {
  switch (currency) {
    case Currency::kEpochs:
      return p.epoch;
    case Currency::kForwardUnits:
      return p.forward_units;
    case Currency::kSeconds:
      return p.seconds;
  }
  return 0;
}

std::vector<const std::vector<eval::CurvePoint>*> curves_of(const Results& r, const PlannedCell& cell,
                                                            const std::string& judge) {
  std::vector<const std::vector<eval::CurvePoint>*> out;
  for (const size_t i : cell.runs)
    if (const auto c = r.findings[i].curves.find(curve_name(judge, cell.on)); c != r.findings[i].curves.end())
      out.push_back(&c->second);
  return out;
}

}  // namespace

std::string CellResult::mark() const {
  std::vector<std::string> parts;
  if (lost > 0) parts.push_back(lost == 1 ? "1 seed lost" : fmt::format("{} seeds lost", lost));
  if (rollbacks > 0)
    parts.push_back(rollbacks == 1 ? "rolled back once" : fmt::format("rolled back {} times", rollbacks));
  return core::join(parts, ", ");
}

Results collect(const Plan& plan, const std::vector<std::string>& failures) {
  Results r{.plan = plan, .failures = failures};
  for (const auto& spec : plan.runs) r.findings.push_back(read_findings(spec));
  std::map<std::string, int64_t> totals;
  for (const auto& cell : plan.cells) r.cells[cell.id] = collect_cell(r, cell, totals);
  Pools pools;
  for (const auto& [id, c] : r.cells)
    for (const auto& [judge, e] : c.score) pools[judge].add(e.values);
  auto before = untrained_pools(r);
  for (auto& [id, c] : r.cells) {
    for (auto& [judge, e] : c.score) settle(e, pools[judge], totals.count(judge) ? totals[judge] : 0);
    for (auto& [judge, e] : c.untrained) settle(e, before[judge], totals[judge]);
  }
  for (const auto& [judge, pool] : pools) r.degrees[judge] = pool.degrees;
  for (const auto& [judge, pool] : paired_pools(r)) r.paired[judge] = {pool.variance(), pool.degrees};
  if (plan.study.reference.empty()) return r;
  for (const auto& cell : plan.cells) {
    const auto* reference = plan.find({plan.study.reference, cell.id.column});
    if (!reference || cell.id.row == plan.study.reference) continue;
    for (const auto& judge : plan.study.judges)
      if (!is_measured_once(judge) && r.cells[cell.id].score.count(judge))
        r.cells[cell.id].efficiency[judge] = efficiency_of(r, cell, *reference, judge);
  }
  return r;
}

Difference difference(const Results& r, const std::string& judge, const Estimate& a, const Estimate& b) {
  const auto degrees = r.degrees.find(judge);
  const bool seeds = a.over_seeds && b.over_seeds && degrees != r.degrees.end();
  return {a.mean - b.mean, std::sqrt(a.variance + b.variance), seeds ? degrees->second : 0};
}

Difference paired_difference(const Results& r, const std::string& judge, const Estimate& a,
                             const Estimate& b) {
  const auto paired = r.paired.find(judge);
  const auto seeds = static_cast<size_t>(r.plan.seeds);
  if (paired == r.paired.end() || paired->second.degrees < 1 || a.values.size() != seeds ||
      b.values.size() != seeds) {
    return difference(r, judge, a, b);
  }
  return {a.mean - b.mean, std::sqrt(2 * paired->second.variance / static_cast<double>(seeds)),
          paired->second.degrees};
}

std::vector<Difference> paired_differences(
    const Results& r, const std::string& judge,
    const std::vector<std::pair<const Estimate*, const Estimate*>>& pairs) {
  const auto seeds = static_cast<size_t>(r.plan.seeds);
  const auto whole = [&](const auto& p) {
    return p.first->values.size() == seeds && p.second->values.size() == seeds;
  };
  Pool pool;
  for (const auto& p : pairs) {
    if (!whole(p)) continue;
    std::vector<double> values;
    for (size_t i = 0; i < seeds; ++i) values.push_back(p.first->values[i] - p.second->values[i]);
    pool.add(values);
  }
  std::vector<Difference> out;
  for (const auto& p : pairs) {
    if (pool.degrees > 0 && whole(p))
      out.push_back({p.first->mean - p.second->mean, std::sqrt(pool.variance() / static_cast<double>(seeds)),
                     pool.degrees});
    else
      out.push_back(difference(r, judge, *p.first, *p.second));
  }
  return out;
}

Budget equal_budget(const Results& r, const std::string& column, const std::string& judge,
                    Currency currency) {
  Budget out{.spent = std::numeric_limits<double>::infinity()};
  for (const auto& cell : r.plan.cells)
    if (cell.id.column == column)
      for (const auto* curve : curves_of(r, cell, judge))
        out.spent = std::min(out.spent, spent_at(curve->back(), currency));
  if (!std::isfinite(out.spent) || !(out.spent > 0)) return {};
  for (const auto& cell : r.plan.cells) {
    if (cell.id.column != column) continue;
    std::vector<double> accuracies;
    double used = 1;
    for (const auto* curve : curves_of(r, cell, judge)) {
      // Clocks are measured: a hair over the budget is within it.
      const auto* at = &curve->front();
      for (const auto& p : *curve)
        if (spent_at(p, currency) <= out.spent * (1 + 1e-9)) at = &p;
      accuracies.push_back(100 * at->accuracy);
      used = std::min(used, spent_at(*at, currency) / out.spent);
    }
    if (!accuracies.empty()) out.rows[cell.id.row] = {mean_of(accuracies), used};
  }
  return out;
}

}  // namespace ebclr::study
