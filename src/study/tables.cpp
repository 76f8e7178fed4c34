#include "study/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "core/text.h"
#include "study/budget.h"
#include "study/write.h"

namespace ebclr::study {
namespace {

using report::Cell;
using report::Table;
using report::Tone;

std::optional<double> paper_figure(const Study& s, const std::string& judge, const CellId& id) {
  const auto figures = s.paper.find(judge);
  if (figures == s.paper.end()) return std::nullopt;
  const auto it = figures->second.find(id);
  return it == figures->second.end() ? std::nullopt : std::optional(it->second);
}

// The best mean of each column.
std::map<std::string, double> best_of(const Results& r, const std::string& judge) {
  std::map<std::string, double> best;
  for (const auto& [id, c] : r.cells)
    if (const auto e = c.score.find(judge); e != c.score.end()) {
      const double v = e->second.mean;
      const auto [it, fresh] = best.try_emplace(id.column, v);
      if (!fresh) it->second = is_distance(judge) ? std::min(it->second, v) : std::max(it->second, v);
    }
  return best;
}

// " *" for a lost seed, " †" for a training that was rolled back.
std::string marks(const CellResult& c, const std::string& judge) {
  return std::string(c.lost(judge) > 0 ? " *" : "") + (c.rollbacks > 0 ? " †" : "");
}

Cell score_cell(const CellResult& cell, const std::string& judge, const std::string& behind, bool best) {
  const auto& e = cell.score.at(judge);
  std::vector<std::string> hint, values;
  for (double v : e.values) values.push_back(fmt::format("{:.2f}", v));
  hint.push_back("seeds: " + core::join(values, ", "));
  if (const auto mark = cell.mark(judge); !mark.empty()) hint.push_back(mark);
  hint.insert(hint.end(), cell.problems.begin(), cell.problems.end());
  return Cell{show(e) + behind + marks(cell, judge), best ? Tone::kBest : Tone::kPlain,
              core::join(hint, "; ")};
}

std::string caption_of(const Results& r, const std::string& judge, bool paper) {
  bool over_seeds = false, lost = false, rolled = false;
  for (const auto& [id, c] : r.cells) {
    const auto e = c.score.find(judge);
    rolled |= c.rollbacks > 0;
    lost |= e != c.score.end() && c.lost(judge) > 0;
    over_seeds |= e != c.score.end() && e->second.over_seeds;
  }
  std::string text = judge_label(judge);
  text += over_seeds
              ? ": mean over seeds ± half of its 95 % interval, by the spread of a column's cells together"
          : is_measured_once(judge)
              ? ": one seed, no interval"
              : ": one seed ± half of the 95 % interval over test images, which decides nothing";
  if (paper) text += "; in brackets the paper's figure at its own scale";
  if (lost) text += "; * a seed is missing, see below";
  if (rolled) text += "; † training was rolled back and went on with a lower rate";
  return text;
}

std::string text_of(const std::optional<eval::Bracket>& b) {
  return b ? eval::to_text(*b) : "-";
}

const char* currency_name(Currency c) {
  return c == Currency::kEpochs         ? "equal epochs"
         : c == Currency::kForwardUnits ? "equal forward-units"
                                        : "equal seconds";
}

std::string amount(double spent, Currency c) {
  return c == Currency::kSeconds ? core::human_seconds(spent) : fmt::format("{:.3g}", spent);
}

}  // namespace

std::string judge_label(const std::string& judge) {
  if (judge == "linear") return "Linear probe, accuracy %";
  if (judge == "knn") return "Weighted kNN (K = 20, 1/L2: the released code), accuracy %";
  if (judge == "knn-dino") return "Weighted kNN (K = 20, cosine, T 0.07: the paper's text), accuracy %";
  if (judge == "strangers-energy") return "Strangers told by energy, AUROC %";
  if (judge == "strangers-neighbour") return "Strangers told by the distance to neighbours, AUROC %";
  if (judge == "strangers-mahalanobis") return "Strangers told by the Mahalanobis distance, AUROC %";
  if (judge == "strangers-combined")
    return "Strangers told by energy, Mahalanobis distance and length together, AUROC %";
  return fmt::format("Frechet distance to data of samples by chains from {}",
                     judge == "frechet-data" ? "data" : "noise");
}

std::vector<Value> planned(const Plan& p, const std::vector<Value>& values, bool rows) {
  std::vector<Value> out;
  for (const auto& v : values)
    if (std::any_of(p.cells.begin(), p.cells.end(),
                    [&](const auto& c) { return (rows ? c.id.row : c.id.column) == v.id; }))
      out.push_back(v);
  return out;
}

Table main_table(const Results& r, const std::string& judge) {
  const auto& s = r.plan.study;
  const auto rows = planned(r.plan, s.rows, true), columns = planned(r.plan, s.columns, false);
  bool paper = false;
  Table t;
  t.columns = {s.row_axis};
  for (const auto& c : columns) t.columns.push_back(c.label.empty() ? judge_label(judge) : c.label);
  auto best = best_of(r, judge);
  for (const auto& row : rows) {
    std::vector<Cell> line = {Cell{row.label}};
    for (const auto& column : columns) {
      const auto cell = r.cells.find({row.id, column.id});
      if (cell == r.cells.end()) {
        line.push_back(Cell{"", Tone::kMuted, "left out"});
        continue;
      }
      const auto figure = paper_figure(s, judge, {row.id, column.id});
      paper |= figure.has_value();
      const auto behind = figure ? fmt::format(" ({:g})", *figure) : std::string();
      const auto e = cell->second.score.find(judge);
      if (e != cell->second.score.end()) {
        const bool first = e->second.mean == best[column.id] && rows.size() > 1;
        line.push_back(score_cell(cell->second, judge, behind, first));
        continue;
      }
      const auto& problems = cell->second.problems;
      line.push_back(
          Cell{(problems.empty() ? "-" : problems.front()) + behind, Tone::kBad, core::join(problems, "; ")});
    }
    t.rows.push_back(std::move(line));
  }
  t.caption = caption_of(r, judge, paper);
  return t;
}

Table cost_table(const Results& r) {
  const auto& s = r.plan.study;
  Table t;
  t.columns = {s.row_axis};
  if (!s.column_axis.empty()) t.columns.push_back(s.column_axis);
  for (const char* c : {"epochs", "wall-clock", "forward-units"}) t.columns.emplace_back(c);
  std::vector<std::string> judges, distances;
  std::partition_copy(s.judges.begin(), s.judges.end(), std::back_inserter(distances),
                      std::back_inserter(judges), is_measured_once);
  for (const auto& j : judges) {
    t.columns.push_back(j + ", untrained");
    t.columns.push_back(j);
  }
  t.columns.insert(t.columns.end(), distances.begin(), distances.end());
  const bool efficient = !s.reference.empty() && !judges.empty();
  if (efficient)
    for (const char* c : {"efficiency in epochs", "in wall-clock", "in forward-units", "paper, epochs"})
      t.columns.emplace_back(c);
  const auto line_of = [&](const Value& row, const Value& column, const CellResult& c) {
    std::vector<Cell> line = {Cell{row.label}};
    if (!s.column_axis.empty()) line.push_back(Cell{column.label});
    if (c.epochs > 0) {
      line.push_back(Cell{std::to_string(c.epochs)});
      line.push_back(Cell{core::human_seconds(c.seconds)});
      line.push_back(Cell{fmt::format("{:.3g}", c.forward_units)});
    } else {
      for (int i = 0; i < 3; ++i) line.push_back(Cell{"-", Tone::kMuted, core::join(c.problems, "; ")});
    }
    const auto estimate = [&](const std::map<std::string, Estimate>& map, const std::string& judge) {
      const auto e = map.find(judge);
      line.push_back(e == map.end() ? Cell{"-", Tone::kMuted} : Cell{show(e->second) + marks(c, judge)});
    };
    for (const auto& j : judges) {
      estimate(c.untrained, j);
      estimate(c.score, j);
    }
    for (const auto& d : distances) estimate(c.score, d);
    if (!efficient) return line;
    const auto e = c.efficiency.find(judges.front());
    if (row.id == s.reference || e == c.efficiency.end()) {
      for (int i = 0; i < 3; ++i) line.push_back(Cell{"-", Tone::kMuted});
    } else if (!e->second.void_because.empty()) {
      line.push_back(Cell{"no target", Tone::kMuted, e->second.void_because});
      for (int i = 0; i < 2; ++i) line.push_back(Cell{"-", Tone::kMuted, e->second.void_because});
    } else {
      line.push_back(Cell{text_of(e->second.epochs)});
      line.push_back(Cell{text_of(e->second.seconds)});
      line.push_back(Cell{text_of(e->second.forward_units)});
    }
    const auto figure = paper_figure(s, "efficiency", {row.id, column.id});
    line.push_back(figure ? Cell{fmt::format("{:g}", *figure)} : Cell{"-", Tone::kMuted});
    return line;
  };
  for (const auto& row : s.rows)
    for (const auto& column : s.columns)
      if (const auto c = r.cells.find({row.id, column.id}); c != r.cells.end())
        t.rows.push_back(line_of(row, column, c->second));
  t.caption = "Cost of each training (mean over seeds), accuracy before and after";
  if (!efficient) return t;
  t.caption += fmt::format(
      ". Efficiency ({}): what {} needed to reach this row's final accuracy, as a part of what this row "
      "spent; "
      "below 1 {} is cheaper. (0.2, 0.3] lies between two checkpoints (mean of both ends over seeds); \"no "
      "target\": the reference begins at or above that accuracy, or the row learnt nothing",
      judges.front(), s.reference, s.reference);
  const bool cosine = std::any_of(r.plan.runs.begin(), r.plan.runs.end(), [](const RunSpec& spec) {
    return spec.config.optimizer.schedule == run::ScheduleKind::kCosine;
  });
  if (cosine)
    t.caption +=
        ". Learning rates fall along a cosine to the end of each run: the reference is read in the middle of "
        "its "
        "own, with its rate still high, the rows at their end";
  return t;
}

Table budget_table(const Results& r, const std::string& judge) {
  const auto& s = r.plan.study;
  const auto rows = planned(r.plan, s.rows, true), columns = planned(r.plan, s.columns, false);
  constexpr Currency kCurrencies[] = {Currency::kEpochs, Currency::kForwardUnits, Currency::kSeconds};
  Table t;
  t.columns = {s.row_axis};
  struct OfColumn : Budget {
    std::string column;
  };
  std::vector<OfColumn> budgets;
  for (const auto& column : columns)
    for (const auto c : kCurrencies) {
      const auto budget = equal_budget(r, column.id, judge, c);
      if (budget.rows.empty()) continue;
      t.columns.push_back(fmt::format("{}{}{} ({})", column.label, column.label.empty() ? "" : ", ",
                                      currency_name(c), amount(budget.spent, c)));
      budgets.push_back({budget, column.id});
    }
  if (budgets.empty()) return t;
  for (const auto& row : rows) {
    std::vector<Cell> line = {Cell{row.label}};
    for (const auto& b : budgets) {
      const auto e = b.rows.find(row.id);
      if (e == b.rows.end()) {
        line.push_back(Cell{"-", Tone::kMuted, "no checkpoint within the budget"});
        continue;
      }
      const auto& [score, used] = e->second;
      double best = 0;
      for (const auto& [id, entry] : b.rows) best = std::max(best, entry.score.mean);
      auto text = show(score);
      if (std::abs(used - 1) > 0.005) text += fmt::format(" ({:.0f} %)", 100 * used);
      const auto cell = r.cells.find({row.id, b.column});
      if (cell != r.cells.end()) text += marks(cell->second, judge);
      line.push_back(Cell{text, score.mean == best ? Tone::kBest : Tone::kPlain});
    }
    t.rows.push_back(std::move(line));
  }
  t.caption = fmt::format(
      "{} when all rows of a column spend the same, as much as the cheapest of them spent in all (the "
      "dearest "
      "of its seeds): the last checkpoint within it, or over it by at most 2 % of forward-units or 5 % of "
      "seconds; mean over seeds ± half of its 95 % interval, in brackets how much of the budget the seed "
      "that "
      "spent least had spent there. A row that is cut short has not come to the end of its schedule. Seconds "
      "are those of the machines that trained, at the pace of a row's quickest seed",
      judge_label(judge));
  return t;
}

Table tuning_table(const Results& r) {
  Table t;
  t.caption = r.plan.tuning_note;
  t.columns = {"trial", "accuracy %, held-out train images", ""};
  for (const auto& trial : r.plan.trials)
    t.rows.push_back({Cell{trial.label},
                      trial.accuracy ? Cell{fmt::format("{:.2f}", *trial.accuracy),
                                            trial.chosen ? Tone::kBest : Tone::kPlain}
                                     : Cell{trial.problem, Tone::kMuted},
                      Cell{trial.chosen ? "chosen" : ""}});
  return t;
}

Table provenance_table(const Results& r) {
  Table t;
  t.caption = "What trained each run";
  t.columns = {"run", "folder", "trained by", "rolled back"};
  for (size_t i = 0; i < r.plan.runs.size(); ++i) {
    const auto& f = r.findings[i];
    if (!f.trained) continue;
    t.rows.push_back({Cell{r.plan.runs[i].title}, Cell{r.plan.runs[i].folder.filename().string()},
                      Cell{f.sessions.empty() ? "not recorded" : f.sessions.back().text()},
                      Cell{std::to_string(f.rollbacks)}});
  }
  return t;
}

Table raw_table(const Results& r) {
  Table t;
  t.columns = {"study",     "scale",   "row",           "column",   "seed",    "judge",  "on",
               "epoch",     "seconds", "forward_units", "accuracy", "correct", "total",  "run",
               "rollbacks", "version", "code",          "engine",   "threads", "problem"};
  for (const auto& cell : r.plan.cells)
    for (size_t seed = 0; seed < cell.runs.size(); ++seed) {
      const size_t i = cell.runs[seed];
      const auto& f = r.findings[i];
      const auto by = f.sessions.empty() ? run::Session{} : f.sessions.back();
      const auto line = [&](const std::string& judge, std::vector<std::string> numbers,
                            const std::string& problem) {
        numbers.resize(6);
        std::vector<std::string> words = {r.plan.study.name,
                                          r.plan.scale,
                                          cell.id.row,
                                          cell.id.column,
                                          std::to_string(r.plan.first_seed + static_cast<int>(seed)),
                                          judge,
                                          cell.on};
        words.insert(words.end(), numbers.begin(), numbers.end());
        for (const auto& w :
             {r.plan.runs[i].folder.filename().string(), std::to_string(f.rollbacks), by.version, by.code,
              by.engine + (by.instructions.empty() ? "" : " " + by.instructions),
              by.threads > 0 ? std::to_string(by.threads) : std::string(), problem})
          words.push_back(w);
        t.rows.emplace_back(words.begin(), words.end());
      };
      const auto at = [](double epoch, double seconds, double units) {
        return std::vector<std::string>{fmt::format("{:g}", epoch), fmt::format("{:.2f}", seconds),
                                        fmt::format("{:.0f}", units)};
      };
      for (const auto& judge : r.plan.runs[i].judges) {
        if (const auto d = f.distances.find(judge); d != f.distances.end()) {
          auto numbers = at(static_cast<double>(f.epochs), f.seconds, f.forward_units);
          numbers.insert(numbers.end(),
                         {fmt::format("{:.6f}", d->second.distance), "", std::to_string(d->second.samples)});
          line(judge, std::move(numbers), "");
        }
        const auto curve = f.curves.find(curve_name(judge, cell.on));
        if (curve == f.curves.end()) continue;
        for (const auto& p : curve->second) {
          auto numbers = at(p.epoch, p.seconds, p.forward_units);
          numbers.insert(numbers.end(), {fmt::format("{:.6f}", p.accuracy), std::to_string(p.correct),
                                         std::to_string(p.total)});
          line(judge, std::move(numbers), "");
        }
      }
      if (const auto problem = problem_of(r.plan.runs[i], f, r.failures[i]); !problem.empty())
        line("", {}, problem);
    }
  return t;
}

}  // namespace ebclr::study
