#include "study/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/text.h"
#include "study/budget.h"

namespace ebclr::study {
namespace {

constexpr double kLevel = 0.025;  // of each side: 5 % in all

/// One comparison of a claim. What can be tested has a p-value for and one against it; the rest is decided
/// already.
struct Comparison {
  std::string text;
  double p_holds = 1, p_fails = 1;
  std::string open = {};         ///< why it stays open whatever the p-values say
  std::string cannot_hold = {};  ///< why it stays open where it would hold; it may still fail
  std::string cannot_fail = {};  ///< the same the other way round
  /// Left out by --only. It counts among the comparisons that a claim makes, or a part of a study would be
  /// judged more leniently than the whole.
  bool not_run = false;
};

/// All comparisons of a claim, and what they come to together.
class Tally {
 public:
  void add(Comparison c) { all_.push_back(std::move(c)); }

  Verdict verdict(const Claim& claim) const {
    Verdict v{claim, Ruling::kUndecided, "", all_.size()};
    const auto not_run = static_cast<size_t>(
        std::count_if(all_.begin(), all_.end(), [](const Comparison& c) { return c.not_run; }));
    if (not_run == all_.size()) {
      v.reason = "nothing to compare: the runs are missing";
      return v;
    }
    std::vector<double> p_holds, p_fails;
    for (const auto& c : all_) {
      p_holds.push_back(c.p_holds);
      p_fails.push_back(c.p_fails);
    }
    p_holds = holm(p_holds);
    p_fails = holm(p_fails);
    const auto corrected = fmt::format("not after the correction for {} comparisons", all_.size());
    std::vector<std::string> holds, fails, open;
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto& c = all_[i];
      if (c.not_run) continue;
      if (!c.open.empty())
        open.push_back(fmt::format("{} ({})", c.text, c.open));
      else if (p_fails[i] < kLevel && !c.cannot_fail.empty())
        open.push_back(fmt::format("{} ({})", c.text, c.cannot_fail));
      else if (p_fails[i] < kLevel)
        fails.push_back(c.text);
      else if (p_holds[i] < kLevel && !c.cannot_hold.empty())
        open.push_back(fmt::format("{} ({})", c.text, c.cannot_hold));
      else if (p_holds[i] < kLevel)
        holds.push_back(c.text);
      else if (std::min(c.p_holds, c.p_fails) < kLevel)
        open.push_back(fmt::format("{} ({})", c.text, corrected));
      else
        open.push_back(c.text);
    }
    if (!fails.empty()) {
      v.ruling = Ruling::kNotSupported;
      v.reason = all_.size() == 1 ? "fails: " + some(fails)
                                  : fmt::format("fails in {} of {} comparisons: {}", fails.size(),
                                                all_.size(), some(fails));
    } else if (!open.empty()) {
      v.reason = all_.size() == 1 ? "open: " + some(open)
                                  : fmt::format("holds in {} of {} comparisons; open: {}", holds.size(),
                                                all_.size(), some(open));
    } else if (not_run > 0) {
      v.reason = fmt::format("holds in {} of {} comparisons: {}", holds.size(), all_.size(), some(holds));
    } else {
      v.ruling = Ruling::kSupported;
      v.reason = all_.size() == 1 ? "holds: " + some(holds)
                                  : fmt::format("holds in all {} comparisons: {}", all_.size(), some(holds));
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

  std::vector<Comparison> all_;
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

/// A side of a comparison, and by whom it was judged.
struct Judged {
  CellId id;
  std::string judge;
};

// " [EBCLR: 1 seed lost]" where the cells of a comparison were not whole.
std::string marks(const Results& r, const std::vector<Judged>& sides) {
  std::vector<std::string> parts;
  for (const auto& [id, judge] : sides) {
    const auto cell = r.cells.find(id);
    if (cell == r.cells.end()) continue;
    if (const auto mark = cell->second.mark(judge); !mark.empty())
      parts.push_back(fmt::format("{}: {}", label(r.plan.study.rows, id.row), mark));
  }
  return parts.empty() ? "" : fmt::format(" [{}]", core::join(parts, "; "));
}

bool is_planned(const Results& r, std::string CellId::*which, const std::string& id) {
  return std::any_of(r.plan.cells.begin(), r.plan.cells.end(),
                     [&](const PlannedCell& cell) { return cell.id.*which == id; });
}

// Columns that a claim is about, whether they were asked for or not.
std::vector<std::string> columns_of(const Results& r, const Claim& claim) {
  std::vector<std::string> out;
  for (const auto& c : r.plan.study.columns)
    if (claim.columns.empty() ||
        std::find(claim.columns.begin(), claim.columns.end(), c.id) != claim.columns.end())
      out.push_back(c.id);
  return out;
}

// Of what a claim is about, what --only left out.
std::vector<std::string> left_out(const Results& r, const Claim& claim) {
  const auto& s = r.plan.study;
  std::vector<std::string> columns = claim.columns, out;
  for (const auto& [a, b] : claim.pairs) columns.insert(columns.end(), {a, b});
  for (const auto& c : s.columns)
    if ((columns.empty() || std::find(columns.begin(), columns.end(), c.id) != columns.end()) &&
        !is_planned(r, &CellId::column, c.id))
      out.push_back(c.label);
  for (const auto* rows : {&claim.rows, &claim.than})
    for (const auto& row : *rows)
      if (!is_planned(r, &CellId::row, row)) out.push_back(label(s.rows, row));
  return out;
}

// A better score says little when neither side has learnt anything yet.
bool learnt(const Results& r, const CellId& id, const std::string& judge, const Estimate& score) {
  const auto cell = r.cells.find(id);
  if (cell == r.cells.end()) return false;
  const auto before = cell->second.untrained.find(judge);
  if (before == cell->second.untrained.end()) return is_measured_once(judge);
  const auto d = difference(score, before->second);
  return d.value > d.half();
}

// "but EBCLR lost a seed"; empty: it has all of them.
std::string lost_seed(const Results& r, const CellId& id, const std::string& judge) {
  const auto cell = r.cells.find(id);
  return cell != r.cells.end() && cell->second.lost(judge) > 0
             ? fmt::format("but {} lost a seed", label(r.plan.study.rows, id.row))
             : "";
}

// Why a cell that looks good with this score cannot carry a claim; empty: it can.
std::string weakness(const Results& r, const CellId& id, const std::string& judge, const Estimate& score) {
  // Those that fell may have been the bad ones.
  if (auto lost = lost_seed(r, id, judge); !lost.empty()) return lost;
  const auto who = label(r.plan.study.rows, id.row);
  return learnt(r, id, judge, score) ? "" : fmt::format("but {} is not above its own untrained encoder", who);
}

// Who is read long before a budget is spent, for want of a checkpoint, is not beaten by it.
std::string cut_short(const Results& r, const CellId& id, const Budget::Entry& entry) {
  constexpr double kSpent = 0.9;
  return entry.used < kSpent ? fmt::format("but {} is read at {:.0f} % of the budget",
                                           label(r.plan.study.rows, id.row), 100 * entry.used)
                             : "";
}

// P(T > distance / error).
double tail(double distance, const Difference& d) {
  return student_tail(distance / d.error, d.degrees);
}

std::string show(const std::string& pair, const Difference& d) {
  return fmt::format("{} {:+.1f} ± {:.1f}", pair, d.value, d.half());
}

constexpr const char* kOneSeed = "one seed decides nothing";

// Why a difference cannot be tested; empty: it can.
std::string untestable(const Results& r, const Difference& d) {
  if (r.plan.seeds < 2 || d.degrees < 0.5) return kOneSeed;
  // Accuracies are counts of images: what is left below this is rounding.
  return d.error > 1e-9 ? "" : "the seeds show no spread to judge by";
}

// What strangers or samples were measured against must be the same on both sides.
std::string incomparable(const Results& r, const CellId& a, const std::string& judge_a, const CellId& b,
                         const std::string& judge_b) {
  const auto as = [&](const CellId& id, const std::string& judge) {
    const auto& all = r.cells.at(id).measured_as;
    const auto it = all.find(judge);
    return it == all.end() ? std::string() : it->second;
  };
  const auto x = as(a, judge_a), y = as(b, judge_b);
  // Seeds that differ among themselves may differ from those of the other side too.
  return x == y && x != CellResult::kMixed ? "" : fmt::format("measured differently: {}; {}", x, y);
}

std::string under(const std::optional<Currency>& at) {
  if (!at) return "";
  return *at == Currency::kEpochs         ? " with equal epochs"
         : *at == Currency::kForwardUnits ? " with equal forward-units"
                                          : " with equal seconds";
}

/// The two sides of a comparison.
struct Sides {
  CellId a, b;
  std::string text;
  std::optional<std::pair<Budget::Entry, Budget::Entry>> cut = {};  ///< where both spend the same
};

std::vector<Sides> sides_of(const Results& r, const Claim& claim) {
  const auto& s = r.plan.study;
  std::vector<Sides> out;
  for (const auto& column : columns_of(r, claim))
    for (const auto& row : claim.rows)
      for (const auto& other : claim.than) {
        auto text = fmt::format("{} against {}{}{}", label(s.rows, row), label(s.rows, other), at(s, column),
                                under(claim.at));
        if (!claim.than_judge.empty()) text += fmt::format(", {} against {}", claim.judge, claim.than_judge);
        out.push_back({{row, column}, {other, column}, std::move(text)});
      }
  return out;
}

void better(const Results& r, const Claim& claim, Tally& tally) {
  const double sign = is_distance(claim.judge) ? -1 : 1;
  const auto than_judge = claim.than_judge.empty() ? claim.judge : claim.than_judge;
  std::vector<Sides> found;
  for (auto& s : sides_of(r, claim)) {
    if (!r.plan.find(s.a) || !r.plan.find(s.b)) {
      tally.add({.text = s.text, .not_run = true});
      continue;
    }
    if (!r.score(s.a, claim.judge) || !r.score(s.b, than_judge)) {
      tally.add({.text = s.text, .open = "missing"});
      continue;
    }
    if (claim.at && !(s.cut = at_equal_cost(r, s.a.column, s.a.row, s.b.row, claim.judge, *claim.at))) {
      tally.add({.text = s.text, .open = "one of them has no checkpoint within what the other spent"});
      continue;
    }
    found.push_back(std::move(s));
  }
  // Ends of runs share the spread of all cells of their column; other pairs that of each other.
  const bool apart = claim.at || !claim.than_judge.empty();
  std::vector<EstimatePair> pairs;
  for (const auto& s : found)
    pairs.push_back({s.cut ? &s.cut->first.score : r.score(s.a, claim.judge),
                     s.cut ? &s.cut->second.score : r.score(s.b, than_judge), r.cells.at(s.a).on,
                     s.a.column});
  const auto together = paired_differences(static_cast<size_t>(r.plan.seeds), pairs);
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& s = found[i];
    const auto d = apart ? together[i] : paired_difference(r, claim.judge, s.a.column, s.a.row, s.b.row);
    Comparison c{show(s.text, d) + marks(r, {{s.a, claim.judge}, {s.b, than_judge}})};
    c.open = untestable(r, d);
    if (c.open.empty()) c.open = incomparable(r, s.a, claim.judge, s.b, than_judge);
    if (c.open.empty()) {
      c.p_holds = tail(sign * d.value - claim.by, d);
      c.p_fails = tail(claim.by - sign * d.value, d);
      c.cannot_hold = weakness(r, s.a, claim.judge, *pairs[i].a);
      // A rival that lost its bad seeds is no proof against a claim.
      c.cannot_fail = lost_seed(r, s.b, than_judge);
      if (s.cut && c.cannot_hold.empty()) c.cannot_hold = cut_short(r, s.b, s.cut->second);
      if (s.cut && c.cannot_fail.empty()) c.cannot_fail = cut_short(r, s.a, s.cut->first);
    }
    tally.add(std::move(c));
  }
}

/// Two cells that are claimed to be equal.
struct EqualPair {
  CellId x, y;
  std::string text;
};

std::vector<EqualPair> equal_pairs(const Results& r, const Claim& claim) {
  const auto& s = r.plan.study;
  std::vector<EqualPair> out;
  if (claim.kind == ClaimKind::kEqual) {
    for (const auto& row : claim.rows)
      for (const auto& [a, b] : claim.pairs)
        out.push_back(
            {{row, a},
             {row, b},
             fmt::format("{}, {} against {}", label(s.rows, row), label(s.columns, a), label(s.columns, b))});
    return out;
  }
  for (const auto& column : columns_of(r, claim))
    for (size_t i = 0; i < claim.rows.size(); ++i)
      for (size_t k = i + 1; k < claim.rows.size(); ++k)
        out.push_back({{claim.rows[i], column},
                       {claim.rows[k], column},
                       fmt::format("{} against {}{}", label(s.rows, claim.rows[i]),
                                   label(s.rows, claim.rows[k]), at(s, column))});
  return out;
}

// Equal within a margin: two one-sided tests, one for each end of it. Seeds are paired.
void equal(const Results& r, const Claim& claim, Tally& tally) {
  std::vector<EqualPair> found;
  std::vector<EstimatePair> estimates;
  for (auto& pair : equal_pairs(r, claim)) {
    const auto *a = r.score(pair.x, claim.judge), *b = r.score(pair.y, claim.judge);
    if (a && b) {
      estimates.push_back({a, b, r.cells.at(pair.x).on, pair.x.column});
      found.push_back(std::move(pair));
    } else {
      const bool planned = r.plan.find(pair.x) && r.plan.find(pair.y);
      tally.add({.text = pair.text, .open = "missing", .not_run = !planned});
    }
  }
  const auto differences = paired_differences(static_cast<size_t>(r.plan.seeds), estimates);
  for (size_t i = 0; i < found.size(); ++i) {
    // Within a column the spread of the whole study is known better than that of these pairs.
    const bool column = found[i].x.column == found[i].y.column;
    const auto& [x, y, text] = found[i];
    const auto d = column ? paired_difference(r, claim.judge, x.column, x.row, y.row) : differences[i];
    Comparison c{show(text, d) + marks(r, {{x, claim.judge}, {y, claim.judge}})};
    c.open = untestable(r, d);
    if (c.open.empty()) c.open = incomparable(r, x, claim.judge, y, claim.judge);
    if (c.open.empty()) {
      c.p_holds = std::max(tail(claim.within - d.value, d), tail(claim.within + d.value, d));
      c.p_fails = tail(std::abs(d.value) - claim.within, d);
      // Two that learnt nothing are equal too, and who lost its bad seeds may look better than it is.
      for (const auto& id : {x, y}) {
        if (c.cannot_hold.empty()) c.cannot_hold = weakness(r, id, claim.judge, *r.score(id, claim.judge));
        if (c.cannot_fail.empty()) c.cannot_fail = lost_seed(r, id, claim.judge);
      }
    }
    tally.add(std::move(c));
  }
}

// Each seed by itself; checkpoints are apart, so a seed whose ratio lies around the limit says neither.
void efficiency(const Results& r, const Claim& claim, Tally& tally) {
  const auto& s = r.plan.study;
  for (const auto& column : columns_of(r, claim))
    for (const auto& row : claim.rows) {
      const auto cell = r.cells.find({row, column});
      const auto who = label(s.rows, row) + at(s, column);
      if (cell == r.cells.end()) {
        tally.add({.text = who, .not_run = true});
        continue;
      }
      const auto e = cell->second.efficiency.find(claim.judge);
      if (e == cell->second.efficiency.end() || e->second.by_seed.empty()) {
        tally.add({.text = who, .open = "missing"});
        continue;
      }
      Comparison c{who + marks(r, {{{row, column}, claim.judge}, {{s.reference, column}, claim.judge}})};
      const auto& seeds = e->second.by_seed;
      if (!e->second.void_because.empty()) {
        c.open = "no target: " + e->second.void_because;
        tally.add(std::move(c));
        continue;
      }
      size_t yes = 0, no = 0;
      std::vector<std::string> values;
      for (const auto& seed : seeds) {
        yes += seed.epochs && seed.epochs->high <= claim.below;
        no += seed.epochs && seed.epochs->low >= claim.below;
        values.push_back(seed.epochs ? eval::to_text(*seed.epochs) : "-");
      }
      c.text += " " + core::join(values, " and ");
      // An epoch of one is not an epoch of the other: what it costs stands beside it.
      if (const auto& units = e->second.forward_units)
        c.text += fmt::format(" of its epochs, {} of its forward-units", eval::to_text(*units));
      if (seeds.size() < 2)
        c.open = kOneSeed;
      else if (seeds.size() < static_cast<size_t>(r.plan.seeds))
        c.open = fmt::format("{} of {} seeds are there", seeds.size(), r.plan.seeds);
      else if (yes == seeds.size())
        c.p_holds = 0;
      else if (no == seeds.size())
        c.p_fails = 0;
      else
        c.open = fmt::format("{} of {} seeds at most {:g}, {} above", yes, seeds.size(), claim.below, no);
      tally.add(std::move(c));
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

std::string how_verdicts_are_reached() {
  return "A claim is supported when all of its comparisons hold and not supported when one fails; what was "
         "not run leaves it undecided. A comparison of accuracies or distances is tested at 2.5 % to each "
         "side, corrected for the number of comparisons that the claim makes, run or not (Holm), not for the "
         "number of claims; the intervals that are shown are single, without that correction. The spread of "
         "seeds is that of a column's cells together (of all columns on the same data set where a column has "
         "fewer than four degrees of freedom), or a cell's or pair's own where it scatters more than the "
         "others (F test at 25 %). Seeds are paired where two cells share them. Intervals are over seeds, "
         "with the test images and the tuned settings as they are. One seed decides nothing; a winner that "
         "lost a seed, or is not above its own untrained encoder, is none; nor is one whose rival was read "
         "below 90 % of an equal budget; what was judged on other images is not compared. Efficiency is no "
         "such test: it is read from checkpoints, (0.2, 0.3] means more than 0.2 and at most 0.3, and every "
         "seed must agree; a final accuracy counts as a target only when it lies above what the reference "
         "has before training, by more than the interval.";
}

std::vector<Verdict> judge_claims(const Results& r) {
  std::vector<Verdict> out;
  for (const auto& claim : r.plan.study.claims) {
    Tally tally;
    switch (claim.kind) {
      case ClaimKind::kBetter:
        better(r, claim, tally);
        break;
      case ClaimKind::kEfficiency:
        efficiency(r, claim, tally);
        break;
      case ClaimKind::kEqual:
      case ClaimKind::kEqualRows:
        equal(r, claim, tally);
        break;
    }
    auto verdict = tally.verdict(claim);
    // One counterexample is enough against a claim; for it, all that it speaks of must have been looked at.
    if (const auto missing = left_out(r, claim); !missing.empty() && verdict.ruling != Ruling::kNotSupported)
      verdict.reason += fmt::format("; not run: {}", core::join(missing, ", "));
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
