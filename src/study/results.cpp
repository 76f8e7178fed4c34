#include "study/results.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

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

// Spread of differences between cells of one column, by judge. A seed decides first weights, images, order
// and views of all of them alike, and what it does to all is no part of a difference.
std::map<std::string, Pool> paired_pools(const Results& r) {
  std::map<std::pair<std::string, std::string>, std::vector<const std::vector<double>*>> blocks;
  for (const auto& [id, cell] : r.cells)
    for (const auto& [judge, e] : cell.score)
      if (e.values.size() == static_cast<size_t>(r.plan.seeds) && e.values.size() > 1)
        blocks[{judge, id.column}].push_back(&e.values);
  std::map<std::string, Pool> pools;
  for (const auto& [key, cells] : blocks) pools[key.first].add_block(cells);
  return pools;
}

void settle(Estimate& e, const Pool& pool, int64_t total) {
  e.mean = mean_of(e.values);
  e.over_seeds = e.values.size() > 1;
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

std::optional<double> mean_if_all(const std::vector<std::optional<double>>& v) {
  if (v.empty()) return std::nullopt;
  double sum = 0;
  for (const auto& x : v) {
    if (!x) return std::nullopt;
    sum += *x;
  }
  return sum / static_cast<double>(v.size());
}

CellEfficiency efficiency_of(const Results& r, const PlannedCell& cell, const PlannedCell& reference,
                             const std::string& judge) {
  CellEfficiency out;
  std::vector<std::optional<double>> seconds, units;
  for (size_t i = 0; i < std::min(cell.runs.size(), reference.runs.size()); ++i) {
    const auto& mine = r.findings[cell.runs[i]].curves;
    const auto& theirs = r.findings[reference.runs[i]].curves;
    const auto a = mine.find(curve_name(judge, cell.on)), b = theirs.find(curve_name(judge, reference.on));
    if (a == mine.end() || b == theirs.end()) continue;
    const auto e = eval::relative_efficiency(b->second, a->second);
    const auto upper = [](const std::optional<eval::Bracket>& b) -> std::optional<double> {
      return b && std::isfinite(b->high) ? std::optional(b->high) : std::nullopt;
    };
    out.epochs_by_seed.push_back(upper(e.epochs));
    seconds.push_back(upper(e.seconds));
    units.push_back(upper(e.forward_units));
  }
  out.epochs = mean_if_all(out.epochs_by_seed);
  out.seconds = mean_if_all(seconds);
  out.forward_units = mean_if_all(units);
  return out;
}

}  // namespace

bool smaller_is_better(const std::string& judge) {
  return is_distance(judge);
}

double student_t(int degrees) {
  static constexpr std::array<double, 30> kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                                    2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                                    2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                                    2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees < 1) return kTable[0];
  if (degrees <= 30) return kTable[static_cast<size_t>(degrees - 1)];
  return 1.960 + 2.4 / degrees;
}

Results collect(const Plan& plan, const std::vector<std::string>& failures) {
  Results r{.plan = plan, .findings = {}, .failures = failures, .cells = {}, .degrees = {}, .paired = {}};
  for (const auto& spec : plan.runs) r.findings.push_back(read_findings(spec));
  std::map<std::string, Pool> pools, untrained_pools;
  std::map<std::string, int64_t> totals;
  for (const auto& cell : plan.cells) {
    CellResult c;
    c.id = cell.id;
    c.on = cell.on;
    std::vector<double> seconds, units;
    for (const size_t i : cell.runs) {
      const auto& f = r.findings[i];
      const auto& spec = plan.runs[i];
      if (!failures[i].empty()) {
        c.problems.push_back("failed: " + failures[i]);
      } else if (!spec.blocked.empty()) {
        c.problems.push_back(spec.blocked);
      } else if (!complete(spec, f)) {
        c.problems.push_back("not finished");
      }
      if (!f.trained) continue;
      c.epochs = f.epochs;
      seconds.push_back(f.seconds);
      units.push_back(f.forward_units);
      for (const auto& judge : spec.judges) {
        const auto curve = f.curves.find(curve_name(judge, cell.on));
        if (curve == f.curves.end()) continue;
        c.score[judge].values.push_back(100 * curve->second.back().accuracy);
        c.untrained[judge].values.push_back(100 * curve->second.front().accuracy);
        totals[judge] = curve->second.back().total;
      }
      for (const auto& [judge, d] : f.distances) c.score[judge].values.push_back(d.distance);
    }
    c.seconds = mean_of(seconds);
    c.forward_units = mean_of(units);
    for (const auto& [judge, e] : c.score) pools[judge].add(e.values);
    for (const auto& [judge, e] : c.untrained) untrained_pools[judge].add(e.values);
    r.cells[cell.id] = std::move(c);
  }
  for (auto& [id, c] : r.cells) {
    for (auto& [judge, e] : c.score) settle(e, pools[judge], totals.count(judge) ? totals[judge] : 0);
    for (auto& [judge, e] : c.untrained) settle(e, untrained_pools[judge], totals[judge]);
  }
  for (const auto& [judge, pool] : pools) r.degrees[judge] = pool.degrees;
  for (const auto& [judge, pool] : paired_pools(r)) r.paired[judge] = {pool.variance(), pool.degrees};
  if (!plan.study.reference.empty()) {
    for (const auto& cell : plan.cells) {
      const auto* reference = plan.find({plan.study.reference, cell.id.column});
      if (!reference || cell.id.row == plan.study.reference) continue;
      for (const auto& judge : plan.study.judges)
        if (!is_distance(judge) && r.cells[cell.id].score.count(judge))
          r.cells[cell.id].efficiency[judge] = efficiency_of(r, cell, *reference, judge);
    }
  }
  return r;
}

Difference difference(const Results& r, const std::string& judge, const Estimate& a, const Estimate& b) {
  const bool seeds = a.over_seeds && b.over_seeds;
  const auto degrees = r.degrees.find(judge);
  const double t = seeds ? student_t(degrees == r.degrees.end() ? 0 : degrees->second) : 1.960;
  return {a.mean - b.mean, t * std::sqrt(a.variance + b.variance)};
}

Difference paired_difference(const Results& r, const std::string& judge, const Estimate& a,
                             const Estimate& b) {
  const auto paired = r.paired.find(judge);
  const auto seeds = static_cast<size_t>(r.plan.seeds);
  if (paired == r.paired.end() || paired->second.degrees < 1 || a.values.size() != seeds ||
      b.values.size() != seeds) {
    return difference(r, judge, a, b);
  }
  return {a.mean - b.mean, student_t(paired->second.degrees) *
                               std::sqrt(2 * paired->second.variance / static_cast<double>(seeds))};
}

}  // namespace ebclr::study
