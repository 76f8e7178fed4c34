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

// Cells of several methods may share one untrained encoder; what is equal in every seed is one thing seen
// twice.
std::vector<Values> different(const std::vector<Estimate*>& estimates) {
  std::set<Values> out;
  for (const auto* e : estimates) out.insert(e->values);
  return {out.begin(), out.end()};
}

void settle_by(const Pool& pool, const Pool& column, Estimate& e) {
  e.mean = mean_of(e.values);
  const auto common = pool.spread();
  e.over_seeds = common.degrees > 0;
  if (e.over_seeds) {
    // The others of its own column, where they say anything.
    const auto fit = fitting(e.values, column.without(e.values), common);
    e.variance = fit.variance / static_cast<double>(e.values.size());
    e.degrees = fit.degrees;
    const double half = student_t(e.degrees) * std::sqrt(e.variance);
    e.low = e.mean - half;
    e.high = e.mean + half;
  } else if (e.total > 0) {
    const auto correct = static_cast<int64_t>(std::llround(e.mean / 100 * static_cast<double>(e.total)));
    const auto interval = eval::wilson(correct, e.total);
    e.low = 100 * interval.low;
    e.high = 100 * interval.high;
    const double p = e.mean / 100;
    e.variance = 1e4 * p * (1 - p) / static_cast<double>(e.total);
  } else {
    e.low = e.high = e.mean;
  }
}

// All estimates of one judge, by data set and column.
using BySet = std::map<std::string, std::map<std::string, std::vector<Estimate*>>>;

void settle_sets(const BySet& estimates, size_t seeds) {
  for (const auto& [set, columns] : estimates) {
    Pool pool;
    for (const auto& [column, list] : columns) pool.add_cells(different(list), seeds);
    for (const auto& [column, list] : columns) settle(list, seeds, pool);
  }
}

void put(std::map<std::string, Estimate>& map, const std::string& judge, size_t seed, double value,
         int64_t total = 0) {
  auto& e = map[judge];
  e.values.push_back(value);
  e.seeds.push_back(seed);
  e.total = total;
}

CellResult collect_cell(const Results& r, const PlannedCell& cell) {
  CellResult c;
  c.id = cell.id;
  c.on = cell.on;
  c.seeds = cell.runs.size();
  const auto measured = [&](const std::string& judge, const std::string& on) {
    auto& as = c.measured_as[judge];
    as = as.empty() || as == on ? on : CellResult::kMixed;
  };
  std::vector<double> units;
  double pace = std::numeric_limits<double>::infinity();
  for (size_t seed = 0; seed < cell.runs.size(); ++seed) {
    const size_t i = cell.runs[seed];
    const auto& f = r.findings[i];
    const auto& spec = r.plan.runs[i];
    const auto problem = problem_of(spec, f, r.failures[i]);
    if (!problem.empty()) c.problems.push_back(problem);
    c.rollbacks += f.rollbacks;
    if (!f.trained) continue;
    c.epochs = f.epochs;
    units.push_back(f.forward_units);
    if (f.forward_units > 0) pace = std::min(pace, f.seconds / f.forward_units);
    for (const auto& judge : spec.judges) {
      const auto curve = f.curves.find(curve_name(judge, cell.on));
      if (curve == f.curves.end()) continue;
      const auto &first = curve->second.front(), &last = curve->second.back();
      put(c.score, judge, seed, 100 * last.accuracy, last.total);
      put(c.untrained, judge, seed, 100 * first.accuracy, first.total);
      measured(judge, f.judged_on.at(curve->first));
    }
    for (const auto& [judge, d] : f.distances) {
      put(c.score, judge, seed, d.distance);
      measured(judge, d.label);
    }
  }
  c.forward_units = mean_of(units);
  if (std::isfinite(pace)) c.seconds = c.forward_units * pace;
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

// With seconds as they would be if nothing else had run.
std::vector<eval::CurvePoint> at_pace(std::vector<eval::CurvePoint> curve, double pace) {
  if (std::isfinite(pace))
    for (auto& p : curve) p.seconds = p.forward_units * pace;
  return curve;
}

double pace_of(const Results& r, const PlannedCell& cell, const std::string& judge) {
  std::vector<const std::vector<eval::CurvePoint>*> all;
  for (const size_t i : cell.runs) {
    const auto& curves = r.findings[i].curves;
    if (const auto c = curves.find(curve_name(judge, cell.on)); c != curves.end()) all.push_back(&c->second);
  }
  return quickest_pace(all);
}

CellEfficiency efficiency_of(const Results& r, const PlannedCell& cell, const PlannedCell& reference,
                             const std::string& judge) {
  CellEfficiency out;
  const double my_pace = pace_of(r, cell, judge), their_pace = pace_of(r, reference, judge);
  for (size_t i = 0; i < std::min(cell.runs.size(), reference.runs.size()); ++i) {
    const auto& mine = r.findings[cell.runs[i]].curves;
    const auto& theirs = r.findings[reference.runs[i]].curves;
    const auto a = mine.find(curve_name(judge, cell.on)), b = theirs.find(curve_name(judge, reference.on));
    if (a == mine.end() || b == theirs.end()) continue;
    out.by_seed.push_back(
        eval::relative_efficiency(at_pace(b->second, their_pace), at_pace(a->second, my_pace)));
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
    const auto d = difference(score, before->second);
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

Values minus(const Values& a, const Values& b) {
  Values out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}

// What is left of the cells of a column on a set that have all their seeds, a row left out. A seed decides
// first weights, images, order and views of all of them alike, and what it does to all is no part of a
// difference.
Pool block_pool(const Results& r, const std::string& judge, const std::string& set, const std::string& column,
                const std::string& left_out) {
  std::vector<Values> block;
  for (const auto& [id, cell] : r.cells) {
    const auto e = cell.score.find(judge);
    if (cell.on == set && id.column == column && (left_out.empty() || id.row != left_out) &&
        e != cell.score.end() && e->second.values.size() == static_cast<size_t>(r.plan.seeds))
      block.push_back(e->second.values);
  }
  Pool pool;
  pool.add_block(block);
  return pool;
}

}  // namespace

size_t CellResult::lost(const std::string& judge) const {
  const auto e = score.find(judge);
  return seeds - (e == score.end() ? 0 : e->second.values.size());
}

std::string CellResult::mark(const std::string& judge) const {
  std::vector<std::string> parts;
  if (const auto n = lost(judge); n > 0)
    parts.push_back(n == 1 ? "1 seed lost" : fmt::format("{} seeds lost", n));
  if (rollbacks > 0)
    parts.push_back(rollbacks == 1 ? "rolled back once" : fmt::format("rolled back {} times", rollbacks));
  return core::join(parts, ", ");
}

const Estimate* Results::score(const CellId& id, const std::string& judge) const {
  const auto cell = cells.find(id);
  if (cell == cells.end()) return nullptr;
  const auto e = cell->second.score.find(judge);
  return e == cell->second.score.end() ? nullptr : &e->second;
}

double quickest_pace(const std::vector<const std::vector<eval::CurvePoint>*>& curves) {
  double pace = std::numeric_limits<double>::infinity();
  for (const auto* curve : curves)
    if (!curve->empty() && curve->back().forward_units > 0)
      pace = std::min(pace, curve->back().seconds / curve->back().forward_units);
  return pace;
}

void settle(const std::vector<Estimate*>& column, size_t seeds, const Pool& set) {
  Pool own;
  own.add_cells(different(column), seeds);
  for (auto* e : column) settle_by(known(own, set), own, *e);
}

Results collect(const Plan& plan, const std::vector<std::string>& failures) {
  Results r{.plan = plan, .failures = failures};
  for (const auto& spec : plan.runs) r.findings.push_back(read_findings(spec));
  for (const auto& cell : plan.cells) r.cells[cell.id] = collect_cell(r, cell);
  std::map<std::string, BySet> scores, untrained;
  for (auto& [id, c] : r.cells) {
    for (auto& [judge, e] : c.score) scores[judge][c.on][id.column].push_back(&e);
    for (auto& [judge, e] : c.untrained) untrained[judge][c.on][id.column].push_back(&e);
  }
  for (const auto* group : {&scores, &untrained})
    for (const auto& [judge, estimates] : *group) settle_sets(estimates, static_cast<size_t>(plan.seeds));
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

Difference difference(const Estimate& a, const Estimate& b) {
  const bool seeds = a.over_seeds && b.over_seeds;
  return {a.mean - b.mean, std::sqrt(a.variance + b.variance), seeds ? std::min(a.degrees, b.degrees) : 0};
}

Difference paired_difference(const Results& r, const std::string& judge, const std::string& column,
                             const std::string& a, const std::string& b) {
  const auto *x = r.score({a, column}, judge), *y = r.score({b, column}, judge);
  const auto seeds = static_cast<size_t>(r.plan.seeds);
  if (seeds < 2 || x->values.size() != seeds || y->values.size() != seeds) return difference(*x, *y);
  const auto set = r.cells.at({a, column}).on;
  Pool all, elsewhere;
  std::set<std::string> columns;
  for (const auto& [id, cell] : r.cells)
    if (cell.on == set) columns.insert(id.column);
  for (const auto& c : columns) {
    const auto pool = block_pool(r, judge, set, c, {});
    all.add(pool);
    if (c != column) elsewhere.add(pool);
  }
  const auto own = block_pool(r, judge, set, column, {});
  // Louder than what: than the column without one of the two, or, where these two are all of it, than the
  // other columns on the set. A difference of two cells has twice the variance of what is left in each.
  const auto twice = [](Spread s) { return Spread{2 * s.variance, s.degrees}; };
  const auto without_a = block_pool(r, judge, set, column, a).spread(),
             without_b = block_pool(r, judge, set, column, b).spread();
  const bool a_is_louder = without_b.degrees < 1 || without_a.variance < without_b.variance;
  auto others = a_is_louder ? without_a : without_b;
  if (others.degrees < 1) others = elsewhere.spread();
  const auto fit = fitting(minus(x->values, y->values), twice(others), twice(known(own, all).spread()));
  return {x->mean - y->mean, std::sqrt(fit.variance / static_cast<double>(seeds)), fit.degrees};
}

std::vector<Difference> paired_differences(size_t seeds, const std::vector<EstimatePair>& pairs) {
  const auto whole = [&](const EstimatePair& p) {
    return seeds > 1 && p.a->values.size() == seeds && p.b->values.size() == seeds;
  };
  std::map<std::string, std::map<std::string, std::vector<Values>>> by_set;
  for (const auto& p : pairs)
    if (whole(p)) by_set[p.set][p.column].push_back(minus(p.a->values, p.b->values));
  std::map<std::string, Pool> sets;
  std::map<std::pair<std::string, std::string>, Pool> columns;
  for (const auto& [set, by_column] : by_set)
    for (const auto& [column, values] : by_column) {
      auto& pool = columns[{set, column}];
      pool.add_sharing(values);
      sets[set].add(pool);
    }
  std::vector<Difference> out;
  for (const auto& p : pairs) {
    if (!whole(p)) {
      out.push_back(difference(*p.a, *p.b));
      continue;
    }
    const auto values = minus(p.a->values, p.b->values);
    const auto& pool = known(columns[{p.set, p.column}], sets[p.set]);
    const auto fit = fitting(values, pool.without(values), pool.spread());
    out.push_back({p.a->mean - p.b->mean, std::sqrt(fit.variance / static_cast<double>(seeds)), fit.degrees});
  }
  return out;
}

}  // namespace ebclr::study
