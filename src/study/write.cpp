#include "study/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "plot/plot.h"
#include "report/page.h"
#include "run/run.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;
using report::Cell;
using report::Table;
using report::Tone;

std::string judge_label(const std::string& judge) {
  if (judge == "linear") return "Linear probe, accuracy %";
  if (judge == "knn") return "Weighted kNN (K = 20, 1/L2: the released code), accuracy %";
  if (judge == "knn-dino") return "Weighted kNN (K = 20, cosine, T 0.07: the paper's text), accuracy %";
  return fmt::format("Frechet distance to data of samples by chains from {}",
                     judge == "frechet-data" ? "data" : "noise");
}

std::string title_of(const Plan& p) {
  return p.study.source.empty() ? p.study.title : fmt::format("{}: {}", p.study.source, p.study.title);
}

std::string describe(const Plan& p) {
  return fmt::format("scale {}, {}, {} runs", p.scale,
                     p.seeds == 1 ? "one seed" : fmt::format("{} seeds", p.seeds), p.runs.size());
}

std::vector<Value> planned(const Plan& p, const std::vector<Value>& values, bool rows) {
  std::vector<Value> out;
  for (const auto& v : values)
    if (std::any_of(p.cells.begin(), p.cells.end(),
                    [&](const auto& c) { return (rows ? c.id.row : c.id.column) == v.id; }))
      out.push_back(v);
  return out;
}

std::optional<double> paper_figure(const Study& s, const std::string& judge, const CellId& id) {
  const auto figures = s.paper.find(judge);
  if (figures == s.paper.end()) return std::nullopt;
  const auto it = figures->second.find(id);
  return it == figures->second.end() ? std::nullopt : std::optional(it->second);
}

// The paper's own table with ours in it: "41.2 ± 0.8 (77.3)".
Table main_table(const Results& r, const std::string& judge) {
  const auto& s = r.plan.study;
  const auto rows = planned(r.plan, s.rows, true), columns = planned(r.plan, s.columns, false);
  bool paper = false;
  Table t;
  t.columns = {s.row_axis};
  for (const auto& c : columns) t.columns.push_back(c.label.empty() ? judge_label(judge) : c.label);
  std::map<std::string, double> best;
  for (const auto& [id, c] : r.cells)
    if (const auto e = c.score.find(judge); e != c.score.end()) {
      const double v = e->second.mean;
      const auto [it, fresh] = best.try_emplace(id.column, v);
      if (!fresh) it->second = smaller_is_better(judge) ? std::min(it->second, v) : std::max(it->second, v);
    }
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
      const auto& problems = cell->second.problems;
      if (e == cell->second.score.end()) {
        line.push_back(Cell{(problems.empty() ? "-" : problems.front()) + behind, Tone::kBad,
                            core::join(problems, "; ")});
        continue;
      }
      std::vector<std::string> seeds;
      for (double v : e->second.values) seeds.push_back(fmt::format("{:.2f}", v));
      line.push_back(Cell{
          show(e->second) + behind + (problems.empty() ? "" : " *"),
          e->second.mean == best[column.id] && rows.size() > 1 ? Tone::kBest : Tone::kPlain,
          "seeds: " + core::join(seeds, ", ") + (problems.empty() ? "" : "; " + core::join(problems, "; "))});
    }
    t.rows.push_back(std::move(line));
  }
  t.caption = judge_label(judge) +
              (r.plan.seeds > 1 ? ": mean over seeds ± half of its 95 % interval"
                                : ": one seed ± half of the 95 % interval over test images") +
              (paper ? "; in brackets the paper's figure at its own scale" : "");
  return t;
}

std::string share(const std::optional<double>& v) {
  return v ? fmt::format("{:.3g}", *v) : "not reached";
}

// What each cell cost, what it started from, and relative efficiency in all three currencies.
Table cost_table(const Results& r) {
  const auto& s = r.plan.study;
  Table t;
  t.columns = {s.row_axis};
  if (!s.column_axis.empty()) t.columns.push_back(s.column_axis);
  for (const char* c : {"epochs", "wall-clock", "forward-units"}) t.columns.emplace_back(c);
  std::vector<std::string> judges;
  for (const auto& j : s.judges)
    if (!is_distance(j)) judges.push_back(j);
  for (const auto& j : judges) {
    t.columns.push_back(j + ", untrained");
    t.columns.push_back(j);
  }
  std::vector<std::string> distances;
  std::copy_if(s.judges.begin(), s.judges.end(), std::back_inserter(distances), is_distance);
  t.columns.insert(t.columns.end(), distances.begin(), distances.end());
  const bool efficient = !s.reference.empty();
  const std::string first = judges.empty() ? "" : judges.front();
  if (efficient)
    for (const char* c : {"efficiency in epochs", "in wall-clock", "in forward-units", "paper, epochs"})
      t.columns.emplace_back(c);
  for (const auto& row : s.rows)
    for (const auto& column : s.columns) {
      const auto it = r.cells.find({row.id, column.id});
      if (it == r.cells.end()) continue;
      const auto& c = it->second;
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
        line.push_back(e == map.end() ? Cell{"-", Tone::kMuted} : Cell{show(e->second)});
      };
      for (const auto& j : judges) {
        estimate(c.untrained, j);
        estimate(c.score, j);
      }
      for (const auto& d : distances) estimate(c.score, d);
      if (efficient) {
        const auto e = c.efficiency.find(first);
        if (row.id == s.reference || e == c.efficiency.end()) {
          for (int i = 0; i < 3; ++i) line.push_back(Cell{"-", Tone::kMuted});
        } else {
          line.push_back(Cell{share(e->second.epochs)});
          line.push_back(Cell{share(e->second.seconds)});
          line.push_back(Cell{share(e->second.forward_units)});
        }
        const auto figure = paper_figure(s, "efficiency", {row.id, column.id});
        line.push_back(figure ? Cell{fmt::format("{:g}", *figure)} : Cell{"-", Tone::kMuted});
      }
      t.rows.push_back(std::move(line));
    }
  t.caption = "Cost of each training (mean over seeds), accuracy before and after";
  if (efficient)
    t.caption += fmt::format(
        ". Efficiency ({}): what {} needed to reach this row's final accuracy, as a part of what this row "
        "spent; "
        "below 1 {} is cheaper",
        first, s.reference, s.reference);
  return t;
}

// Curves of a judge in one column, the mean over seeds with a band from the lowest to the highest.
report::Chart curves(const Results& r, const std::string& judge, const Value& column, bool by_units) {
  report::Chart chart;
  chart.title = column.label.empty() ? judge_label(judge) : fmt::format("{}, {}", column.label, judge);
  chart.x_label = by_units ? "millions of forward-units" : "epochs";
  chart.y_label = "accuracy %";
  for (const auto& row : r.plan.study.rows) {
    const auto* cell = r.plan.find({row.id, column.id});
    if (!cell) continue;
    std::vector<const std::vector<eval::CurvePoint>*> seeds;
    for (const size_t i : cell->runs)
      if (const auto c = r.findings[i].curves.find(curve_name(judge, cell->on));
          c != r.findings[i].curves.end())
        seeds.push_back(&c->second);
    if (seeds.empty()) continue;
    size_t points = seeds[0]->size();
    for (const auto* s : seeds) points = std::min(points, s->size());
    plot::Series series{.name = row.label};
    series.markers = points <= 30;
    for (size_t p = 0; p < points; ++p) {
      double sum = 0, low = 1e300, high = -1e300, x = 0;
      for (const auto* s : seeds) {
        const double y = 100 * (*s)[p].accuracy;
        sum += y;
        low = std::min(low, y);
        high = std::max(high, y);
        x += by_units ? (*s)[p].forward_units / 1e6 : (*s)[p].epoch;
      }
      const auto n = static_cast<double>(seeds.size());
      series.x.push_back(x / n);
      series.y.push_back(sum / n);
      if (seeds.size() > 1) {
        series.low.push_back(low);
        series.high.push_back(high);
      }
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Tone tone(Ruling ruling) {
  return ruling == Ruling::kSupported      ? Tone::kGood
         : ruling == Ruling::kNotSupported ? Tone::kBad
                                           : Tone::kMuted;
}

// The newest picture of chains that a run has drawn; empty without one.
fs::path newest_samples(const RunSpec& spec) {
  fs::path newest;
  std::error_code ec;
  for (const auto& f : fs::directory_iterator(run::RunFolder{spec.folder}.samples(), ec))
    if (f.path().extension() == ".png" && f.path().filename() > newest.filename()) newest = f.path();
  return newest;
}

std::vector<std::string> problems_of(const Results& r) {
  std::vector<std::string> out;
  for (size_t i = 0; i < r.plan.runs.size(); ++i) {
    const auto& spec = r.plan.runs[i];
    if (!r.failures[i].empty())
      out.push_back(fmt::format("{}: failed: {}", spec.title, r.failures[i]));
    else if (!spec.blocked.empty())
      out.push_back(fmt::format("{}: {}", spec.title, spec.blocked));
    else if (!complete(spec, r.findings[i]))
      out.push_back(fmt::format("{}: not finished", spec.title));
  }
  return out;
}

std::string settings_text(const Results& r, const Value& row, const Value& column) {
  const auto* cell = r.plan.find({row.id, column.id});
  if (!cell) return "";
  std::string text;
  for (const auto& [key, origin] : r.plan.runs[cell->runs[0]].config.origins) {
    if (origin == "default" || key == "train.seed" || key == "data.root") continue;
    for (const auto& f : run::fields())
      if (f.key == key) text += fmt::format("{}: {}\n", key, f.get(r.plan.runs[cell->runs[0]].config));
  }
  return text;
}

// What the distances of a judge were measured with, and between which ends they lie.
std::string distance_note(const Results& r, const std::string& judge) {
  for (const auto& f : r.findings) {
    const auto it = f.distances.find(judge);
    if (it == f.distances.end()) continue;
    const auto& d = it->second;
    return fmt::format(
        "{}: {}, {} samples after {} steps. Between two parts of the data of this size: {:.2f}; of uniform "
        "noise: {:.2f}. The choice of samples alone moves a distance by about {:.2f}.",
        judge_label(judge), d.label, d.samples, d.steps, d.floor, d.ceiling, d.deviation);
  }
  return "";
}

report::Page to_page(const Results& r, const Facts& facts) {
  const auto& s = r.plan.study;
  report::Page page(title_of(r.plan), describe(r.plan));
  if (!s.about.empty()) page.text(s.about);
  const auto verdicts = judge_claims(r);
  if (!verdicts.empty()) page.heading("Verdicts");
  for (const auto& v : verdicts)
    page.callout(tone(v.ruling), fmt::format("{}: {}", v.claim.says, name(v.ruling)), v.reason);
  const auto problems = problems_of(r);
  if (!problems.empty()) {
    page.heading("What is missing");
    for (const auto& p : problems) page.text(p);
  }
  page.heading("Results");
  for (const auto& j : s.judges) page.table(main_table(r, j));
  for (const auto& j : s.judges)
    if (const auto text = distance_note(r, j); !text.empty()) page.text(text);
  page.heading("Cost and relative efficiency");
  page.table(cost_table(r));
  const auto columns = planned(r.plan, s.columns, false);
  std::vector<report::Chart> by_epoch, by_units;
  for (const auto& j : s.judges)
    for (const auto& c : columns) {
      if (is_distance(j)) continue;
      by_epoch.push_back(curves(r, j, c, false));
      by_units.push_back(curves(r, j, c, true));
    }
  if (!by_epoch.empty()) {
    page.heading("Accuracy along the runs");
    page.charts(by_epoch);
    page.text("The same against what it cost: a forward-unit is one image once through the encoder.");
    page.charts(by_units);
  }
  std::vector<report::Picture> pictures;
  for (const auto& cell : r.plan.cells) {
    const auto& spec = r.plan.runs[cell.runs[0]];
    const auto picture = newest_samples(spec);
    if (!picture.empty())
      pictures.push_back(
          {core::read_bytes(picture, "study"), fmt::format("{}: {}", spec.title, picture.stem().string())});
  }
  if (!pictures.empty()) {
    page.heading("Samples of the chains");
    page.pictures(pictures);
  }
  page.heading("Settings");
  page.text("What differs from the defaults of `ebclr config show`, seed aside.");
  for (const auto& row : planned(r.plan, s.rows, true)) {
    const auto text = settings_text(r, row, columns.front());
    if (text.empty()) continue;
    page.begin_details(row.label + (columns.front().label.empty() ? "" : ", " + columns.front().label));
    page.code(text);
    page.end_details();
  }
  page.heading("How this was made");
  page.facts(facts);
  return page;
}

}  // namespace

std::string show(const Estimate& e) {
  if (e.values.empty()) return "-";
  const double half = (e.high - e.low) / 2;
  return half > 0 ? fmt::format("{:.1f} ± {:.1f}", e.mean, half) : fmt::format("{:.1f}", e.mean);
}

std::string to_markdown(const Results& r, const Facts& facts) {
  const auto& s = r.plan.study;
  std::string md = fmt::format("# {}\n\n{}\n", title_of(r.plan), describe(r.plan));
  if (!s.about.empty()) md += "\n" + s.about + "\n";
  const auto verdicts = judge_claims(r);
  if (!verdicts.empty()) md += "\n## Verdicts\n\n";
  for (const auto& v : verdicts)
    md += fmt::format("- {}: **{}**. {}.\n", v.claim.says, name(v.ruling), v.reason);
  const auto problems = problems_of(r);
  if (!problems.empty()) md += "\n## What is missing\n\n";
  for (const auto& p : problems) md += "- " + p + "\n";
  md += "\n## Results\n";
  for (const auto& j : s.judges) md += "\n" + report::to_markdown(main_table(r, j));
  md += "\n## Cost and relative efficiency\n\n" + report::to_markdown(cost_table(r));
  md += "\n## How this was made\n\n";
  for (const auto& [key, value] : facts) md += fmt::format("- {}: {}\n", key, value);
  return md;
}

std::string to_csv(const Results& r) {
  Table t;
  t.columns = {"study",   "scale",         "row",      "column",  "seed",  "judge", "on",     "epoch",
               "seconds", "forward_units", "accuracy", "correct", "total", "run",   "problem"};
  for (const auto& cell : r.plan.cells)
    for (size_t seed = 0; seed < cell.runs.size(); ++seed) {
      const size_t i = cell.runs[seed];
      const auto& spec = r.plan.runs[i];
      const auto& f = r.findings[i];
      const auto line = [&](const std::string& judge, const std::vector<std::string>& numbers,
                            const std::string& problem) {
        std::vector<Cell> cells;
        for (const auto& text : {r.plan.study.name, r.plan.scale, cell.id.row, cell.id.column,
                                 std::to_string(seed), judge, cell.on})
          cells.push_back(Cell{text});
        for (const auto& n : numbers) cells.push_back(Cell{n});
        cells.push_back(Cell{spec.folder.filename().string()});
        cells.push_back(Cell{problem});
        t.rows.push_back(std::move(cells));
      };
      for (const auto& judge : spec.judges) {
        const auto curve = f.curves.find(curve_name(judge, cell.on));
        if (curve == f.curves.end()) continue;
        for (const auto& p : curve->second)
          line(judge,
               {fmt::format("{:g}", p.epoch), fmt::format("{:.2f}", p.seconds),
                fmt::format("{:.0f}", p.forward_units), fmt::format("{:.6f}", p.accuracy),
                std::to_string(p.correct), std::to_string(p.total)},
               "");
      }
      for (const auto& [judge, d] : f.distances)
        line(judge,
             {std::to_string(f.epochs), fmt::format("{:.2f}", f.seconds),
              fmt::format("{:.0f}", f.forward_units), fmt::format("{:.6f}", d.distance), "",
              std::to_string(d.samples)},
             "");
      const auto problem = !r.failures[i].empty()  ? "failed: " + r.failures[i]
                           : !spec.blocked.empty() ? spec.blocked
                           : !complete(spec, f)    ? std::string("not finished")
                                                   : std::string();
      if (!problem.empty()) line("", {"", "", "", "", "", ""}, problem);
    }
  return report::to_csv(t);
}

Written write_results(const Results& r, const Facts& facts, const fs::path& folder) {
  Written w{folder / "report.html", folder / "report.md", folder / "results.csv", {}};
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) core::run_error("study", fmt::format("{}: cannot be created: {}", folder.string(), ec.message()));
  core::write_atomically(w.html, to_page(r, facts).html(), "study");
  core::write_atomically(w.markdown, to_markdown(r, facts), "study");
  core::write_atomically(w.csv, to_csv(r), "study");
  for (const auto& judge : r.plan.study.judges) {
    std::vector<plot::Image> panels;
    for (const auto& column : planned(r.plan, r.plan.study.columns, false)) {
      const auto chart = curves(r, judge, column, false);
      if (!chart.series.empty())
        panels.push_back(plot::line_chart(chart.series, {.title = chart.title,
                                                         .x_label = chart.x_label,
                                                         .y_label = chart.y_label,
                                                         .width = 520,
                                                         .height = 400}));
    }
    if (panels.empty()) continue;
    w.curves.push_back(folder / fmt::format("curves_{}.png", judge));
    plot::write_png(w.curves.back(), plot::side_by_side(panels));
  }
  return w;
}

}  // namespace ebclr::study
