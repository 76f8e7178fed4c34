#include "study/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace ebclr::study {
namespace {

// Every comparison that a claim makes ends as one of these, with a phrase to tell of it.
struct Tally {
  std::vector<std::string> holds, fails, open;

  Verdict verdict(const Claim& claim) const {
    Verdict v{claim, Ruling::kUndecided, ""};
    const size_t all = holds.size() + fails.size() + open.size();
    if (all == 0) {
      v.reason = "nothing to compare: the runs are missing";
    } else if (!fails.empty()) {
      v.ruling = Ruling::kNotSupported;
      v.reason = fmt::format("fails in {} of {} comparisons: {}", fails.size(), all, some(fails));
    } else if (!open.empty()) {
      v.reason = fmt::format("holds in {} of {} comparisons; open: {}", holds.size(), all, some(open));
    } else {
      v.ruling = Ruling::kSupported;
      v.reason = fmt::format("holds in all {} comparisons: {}", all, some(holds));
    }
    return v;
  }

 private:
  static std::string some(const std::vector<std::string>& list) {
    constexpr size_t kShown = 4;
    auto shown = list;
    if (shown.size() > kShown) shown.resize(kShown);
    auto text = core::join(shown, "; ");
    if (list.size() > kShown) text += fmt::format("; and {} more", list.size() - kShown);
    return text;
  }
};

std::string label(const std::vector<Value>& values, const std::string& id) {
  for (const auto& v : values)
    if (v.id == id) return v.label;
  return id;
}

std::string at(const Study& study, const std::string& column) {
  const auto text = label(study.columns, column);
  return text.empty() ? "" : " on " + text;
}

const Estimate* find(const Results& r, const CellId& id, const std::string& judge) {
  const auto cell = r.cells.find(id);
  if (cell == r.cells.end()) return nullptr;
  const auto e = cell->second.score.find(judge);
  return e == cell->second.score.end() ? nullptr : &e->second;
}

// Columns that were asked for; what --only left out is not a gap.
std::vector<std::string> columns_of(const Results& r, const Claim& claim) {
  std::vector<std::string> out;
  for (const auto& c : r.plan.study.columns) {
    const bool named = claim.columns.empty() ||
                       std::find(claim.columns.begin(), claim.columns.end(), c.id) != claim.columns.end();
    const bool planned = std::any_of(r.plan.cells.begin(), r.plan.cells.end(),
                                     [&](const PlannedCell& cell) { return cell.id.column == c.id; });
    if (named && planned) out.push_back(c.id);
  }
  return out;
}

// A better score says little when neither side has learnt anything yet.
bool learnt(const Results& r, const CellId& id, const std::string& judge) {
  const auto cell = r.cells.find(id);
  if (cell == r.cells.end()) return false;
  const auto before = cell->second.untrained.find(judge), after = cell->second.score.find(judge);
  if (before == cell->second.untrained.end()) return is_distance(judge);
  const auto d = difference(r, judge, after->second, before->second);
  return d.value > d.half;
}

void better(const Results& r, const Claim& claim, Tally& tally) {
  const auto& s = r.plan.study;
  const double sign = smaller_is_better(claim.judge) ? -1 : 1;
  for (const auto& column : columns_of(r, claim))
    for (const auto& row : claim.rows)
      for (const auto& other : claim.than) {
        const auto *a = find(r, {row, column}, claim.judge), *b = find(r, {other, column}, claim.judge);
        const auto pair =
            fmt::format("{} against {}{}", label(s.rows, row), label(s.rows, other), at(s, column));
        if (!a || !b) {
          if (r.plan.find({row, column}) && r.plan.find({other, column}))
            tally.open.push_back(pair + " is missing");
          continue;
        }
        const auto d = paired_difference(r, claim.judge, *a, *b);
        const auto text = fmt::format("{} {:+.1f} ± {:.1f}", pair, d.value, d.half);
        if (sign * d.value < -d.half) {
          tally.fails.push_back(text);
        } else if (sign * d.value <= d.half) {
          tally.open.push_back(text);
        } else if (!learnt(r, {row, column}, claim.judge)) {
          tally.open.push_back(text + " (but not above its own untrained encoder)");
        } else {
          tally.holds.push_back(text);
        }
      }
}

void within(const Results& r, const Claim& claim, const CellId& x, const CellId& y, const std::string& pair,
            Tally& tally) {
  const auto *a = find(r, x, claim.judge), *b = find(r, y, claim.judge);
  if (!a || !b) {
    if (r.plan.find(x) && r.plan.find(y)) tally.open.push_back(pair + " is missing");
    return;
  }
  const auto d = difference(r, claim.judge, *a, *b);
  const auto text = fmt::format("{} {:+.1f} ± {:.1f}", pair, d.value, d.half);
  if (std::abs(d.value) + d.half <= claim.within)
    tally.holds.push_back(text);
  else if (std::abs(d.value) - d.half > claim.within)
    tally.fails.push_back(text);
  else
    tally.open.push_back(text);
}

void efficiency(const Results& r, const Claim& claim, Tally& tally) {
  const auto& s = r.plan.study;
  for (const auto& column : columns_of(r, claim))
    for (const auto& row : claim.rows) {
      const auto cell = r.cells.find({row, column});
      if (cell == r.cells.end()) continue;
      const auto e = cell->second.efficiency.find(claim.judge);
      const auto who = label(s.rows, row) + at(s, column);
      if (e == cell->second.efficiency.end() || e->second.epochs_by_seed.empty()) {
        tally.open.push_back(who + " is missing");
        continue;
      }
      size_t yes = 0;
      for (const auto& value : e->second.epochs_by_seed) yes += value && *value <= claim.below;
      const auto text = fmt::format(
          "{} {}", who,
          e->second.epochs ? fmt::format("{:.2f}", *e->second.epochs) : "not reached by every seed");
      if (yes == e->second.epochs_by_seed.size())
        tally.holds.push_back(text);
      else if (yes == 0)
        tally.fails.push_back(text);
      else
        tally.open.push_back(text + fmt::format(" ({} of {} seeds)", yes, e->second.epochs_by_seed.size()));
    }
}

}  // namespace

std::string name(Ruling ruling) {
  switch (ruling) {
    case Ruling::kSupported:
      return "supported";
    case Ruling::kNotSupported:
      return "not supported";
    case Ruling::kUndecided:
      return "undecided at this scale";
  }
  return "";
}

std::vector<Verdict> judge_claims(const Results& r) {
  std::vector<Verdict> out;
  const auto& s = r.plan.study;
  for (const auto& claim : s.claims) {
    Tally tally;
    switch (claim.kind) {
      case ClaimKind::kBetter:
        better(r, claim, tally);
        break;
      case ClaimKind::kEfficiency:
        efficiency(r, claim, tally);
        break;
      case ClaimKind::kEqual:
        for (const auto& row : claim.rows)
          for (const auto& [a, b] : claim.pairs)
            within(r, claim, {row, a}, {row, b},
                   fmt::format("{}, {} against {}", label(s.rows, row), label(s.columns, a),
                               label(s.columns, b)),
                   tally);
        break;
      case ClaimKind::kEqualRows:
        for (const auto& column : columns_of(r, claim))
          for (size_t i = 0; i < claim.rows.size(); ++i)
            for (size_t k = i + 1; k < claim.rows.size(); ++k)
              within(r, claim, {claim.rows[i], column}, {claim.rows[k], column},
                     fmt::format("{} against {}{}", label(s.rows, claim.rows[i]),
                                 label(s.rows, claim.rows[k]), at(s, column)),
                     tally);
        break;
    }
    auto verdict = tally.verdict(claim);
    if (!r.plan.decides && verdict.ruling != Ruling::kUndecided) {
      verdict.reason =
          fmt::format("runs of scale {} settle nothing; here it {}", r.plan.scale, verdict.reason);
      verdict.ruling = Ruling::kUndecided;
    }
    out.push_back(std::move(verdict));
  }
  return out;
}

}  // namespace ebclr::study
