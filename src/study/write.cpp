#include "study/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/files.h"
#include "core/text.h"
#include "data/catalog.h"
#include "plot/plot.h"
#include "report/page.h"
#include "run/provenance.h"
#include "run/run.h"
#include "study/tables.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;
using report::Tone;

std::string title_of(const Plan& p) {
  return p.study.source.empty() ? p.study.title : fmt::format("{}: {}", p.study.source, p.study.title);
}

std::string describe(const Plan& p) {
  return fmt::format("scale {}, {}, {} runs", p.scale, describe_seeds(p), p.runs.size());
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

// "EBCLR, CIFAR-10, seed 1" and "EBCLR, CIFAR-10, seed 2" -> "EBCLR, CIFAR-10, seeds 1, 2".
std::string title_of_seeds(const std::vector<std::string>& titles) {
  constexpr std::string_view kSeed = ", seed ";
  std::string out = titles.front();
  const auto at = out.rfind(kSeed);
  if (titles.size() == 1 || at == std::string::npos) return core::join(titles, "; ");
  out = out.substr(0, at) + ", seeds ";
  for (size_t i = 0; i < titles.size(); ++i)
    out += (i > 0 ? ", " : "") + titles[i].substr(titles[i].rfind(kSeed) + kSeed.size());
  return out;
}

// Seeds of one cell to which the same happened share a line.
std::vector<std::string> problems_of(const Results& r) {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;  // what happened, to which runs
  const auto cell = [](const std::string& title) { return title.substr(0, title.rfind(", seed ")); };
  const auto add = [&](const RunSpec& spec, const std::string& what) {
    for (auto& [other, titles] : found)
      if (other == what && cell(titles.front()) == cell(spec.title)) return titles.push_back(spec.title);
    found.push_back({what, {spec.title}});
  };
  for (size_t i = 0; i < r.plan.runs.size(); ++i) {
    const auto& spec = r.plan.runs[i];
    if (const auto problem = problem_of(spec, r.findings[i], r.failures[i]); !problem.empty())
      add(spec, problem);
    if (const auto n = r.findings[i].rollbacks; n > 0)
      add(spec, fmt::format("training was rolled back {} and went on with a lower rate",
                            n == 1 ? "once" : fmt::format("{} times", n)));
  }
  std::vector<std::string> out;
  for (const auto& [what, titles] : found) out.push_back(fmt::format("{}: {}", title_of_seeds(titles), what));
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

std::vector<std::string> provenance_of(const Results& r) {
  std::vector<run::NamedSessions> named;
  for (size_t i = 0; i < r.plan.runs.size(); ++i)
    if (r.findings[i].trained) named.push_back({r.plan.runs[i].title, r.findings[i].sessions});
  return run::provenance_warnings(named);
}

// Each way in which runs were trained, with how many.
std::vector<std::string> trained_by(const Results& r) {
  std::map<std::string, int> ways;
  for (const auto& f : r.findings)
    if (f.trained) ++ways[f.sessions.empty() ? "not recorded" : f.sessions.back().text()];
  std::vector<std::string> out;
  for (const auto& [way, runs] : ways)
    out.push_back(fmt::format("trained by: {} ({} run{})", way, runs, runs == 1 ? "" : "s"));
  return out;
}

// On how many images each set was learnt and judged.
std::vector<std::string> images_of(const Results& r) {
  std::map<std::string, std::set<std::string>> by_set;
  for (const auto& cell : r.plan.cells)
    for (const size_t i : cell.runs) {
      const auto& spec = r.plan.runs[i];
      for (const auto& [name, curve] : r.findings[i].curves) {
        if (curve.empty() || name.set != cell.on) continue;
        const auto total = curve.back().total;
        const auto whole = spec.judging.limit_test == 0 ? data::test_images(cell.on) : 0;
        by_set[cell.on].insert(
            fmt::format("{} train, {} test{}", spec.images, total,
                        total < whole ? fmt::format(" (an excerpt: the set has {})", whole) : ""));
      }
    }
  std::vector<std::string> out;
  for (const auto& [set, counts] : by_set) {
    out.push_back(fmt::format("images, {}: {}", set, core::join({counts.begin(), counts.end()}, "; ")));
    if (counts.size() > 1) out.back() += ". **Not all runs were judged alike**";
  }
  return out;
}

// How long probes were trained; nothing where there was none.
std::vector<std::string> probes_of(const Results& r) {
  const auto& judges = r.plan.study.judges;
  if (r.plan.runs.empty() || std::find(judges.begin(), judges.end(), "linear") == judges.end()) return {};
  const auto& j = r.plan.runs.front().judging;
  return {fmt::format("linear probe: {} epochs, the best of {} learning rates on held-out train images",
                      j.probe_epochs, j.probe_rates)};
}

// What the distances of a judge were measured with, and between which ends they lie.
std::string distance_note(const Results& r, const std::string& judge) {
  for (const auto& f : r.findings) {
    const auto it = f.distances.find(judge);
    if (it == f.distances.end()) continue;
    const auto& d = it->second;
    if (!is_distance(judge)) return fmt::format("{}: {}.", judge_label(judge), d.label);
    auto text = fmt::format(
        "{}: {}, {} samples after {} steps. Between two parts of the data of this size: {:.2f}; of uniform "
        "noise: {:.2f}.",
        judge_label(judge), d.label, d.samples, d.steps, d.floor, d.ceiling);
    if (std::isfinite(d.deviation))
      text += fmt::format(" The choice of samples alone moves a distance by about {:.2f}.", d.deviation);
    return text;
  }
  return "";
}

void add_curves(report::Page& page, const Results& r) {
  std::vector<report::Chart> by_epoch, by_units;
  for (const auto& j : r.plan.study.judges)
    for (const auto& c : planned(r.plan, r.plan.study.columns, false)) {
      if (is_measured_once(j)) continue;
      by_epoch.push_back(curves(r, j, c, false));
      by_units.push_back(curves(r, j, c, true));
    }
  if (by_epoch.empty()) return;
  page.heading("Accuracy along the runs");
  page.charts(by_epoch);
  page.text("The same against what it cost: a forward-unit is one image once through the encoder.");
  page.charts(by_units);
}

void add_samples(report::Page& page, const Results& r) {
  std::vector<report::Picture> pictures;
  for (const auto& cell : r.plan.cells) {
    const auto& spec = r.plan.runs[cell.runs[0]];
    const auto picture = newest_samples(spec);
    if (!picture.empty())
      pictures.push_back(
          {core::read_bytes(picture, "study"), fmt::format("{}: {}", spec.title, picture.stem().string())});
  }
  if (pictures.empty()) return;
  page.heading("Samples of the chains");
  page.pictures(pictures);
}

void add_settings(report::Page& page, const Results& r) {
  page.heading("Settings");
  if (const auto t = tuning_table(r); !t.rows.empty())
    page.table(t);
  else if (!r.plan.tuning_note.empty())
    page.text(r.plan.tuning_note);
  page.text("What differs from the defaults of `ebclr config show`, seed aside.");
  const auto column = planned(r.plan, r.plan.study.columns, false).front();
  for (const auto& row : planned(r.plan, r.plan.study.rows, true)) {
    const auto text = settings_text(r, row, column);
    if (text.empty()) continue;
    page.begin_details(row.label + (column.label.empty() ? "" : ", " + column.label));
    page.code(text);
    page.end_details();
  }
}

report::Page to_page(const Results& r, const Facts& facts) {
  const auto& s = r.plan.study;
  report::Page page(title_of(r.plan), describe(r.plan));
  if (!s.about.empty()) page.text(s.about);
  const auto verdicts = judge_claims(r);
  if (!verdicts.empty()) page.heading("Verdicts");
  for (const auto& v : verdicts)
    page.callout(tone(v.ruling), fmt::format("{}: {}", v.claim.says, name(v.ruling)), v.reason);
  if (!verdicts.empty()) page.text(how_verdicts_are_reached());
  const auto problems = problems_of(r);
  if (!problems.empty()) {
    page.heading("What is missing or was rolled back");
    for (const auto& p : problems) page.text(p);
  }
  page.heading("Results");
  for (const auto& j : s.judges) page.table(main_table(r, j));
  for (const auto& j : s.judges)
    if (const auto text = distance_note(r, j); !text.empty()) page.text(text);
  page.heading("Cost and relative efficiency");
  page.table(cost_table(r));
  for (const auto& j : s.judges)
    if (const auto budget = budget_table(r, j); !budget.rows.empty()) page.table(budget);
  add_curves(page, r);
  add_samples(page, r);
  add_settings(page, r);
  page.heading("How this was made");
  for (const auto& w : provenance_of(r)) page.callout(Tone::kMuted, "What trained these runs", w);
  page.facts(facts);
  for (const auto& line : images_of(r)) page.text(line);
  for (const auto& line : probes_of(r)) page.text(line);
  for (const auto& line : trained_by(r)) page.text(line);
  if (const auto by = provenance_table(r); !by.rows.empty()) {
    page.begin_details("What trained each run");
    page.table(by);
    page.end_details();
  }
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
  if (!verdicts.empty()) md += "\n" + how_verdicts_are_reached() + "\n";
  const auto problems = problems_of(r);
  if (!problems.empty()) md += "\n## What is missing or was rolled back\n\n";
  for (const auto& p : problems) md += "- " + p + "\n";
  md += "\n## Results\n";
  for (const auto& j : s.judges) {
    md += "\n" + report::to_markdown(main_table(r, j));
    if (const auto text = distance_note(r, j); !text.empty()) md += "\n" + text + "\n";
  }
  md += "\n## Cost and relative efficiency\n\n" + report::to_markdown(cost_table(r));
  for (const auto& j : s.judges)
    if (const auto budget = budget_table(r, j); !budget.rows.empty())
      md += "\n" + report::to_markdown(budget);
  if (!r.plan.tuning_note.empty()) md += "\n## Tuning\n\n";
  if (const auto t = tuning_table(r); !t.rows.empty())
    md += report::to_markdown(t);
  else if (!r.plan.tuning_note.empty())
    md += r.plan.tuning_note + "\n";
  md += "\n## How this was made\n\n";
  for (const auto& [key, value] : facts) md += fmt::format("- {}: {}\n", key, value);
  for (const auto& line : images_of(r)) md += "- " + line + "\n";
  for (const auto& line : probes_of(r)) md += "- " + line + "\n";
  for (const auto& line : trained_by(r)) md += "- " + line + "\n";
  for (const auto& w : provenance_of(r)) md += fmt::format("- note: {}\n", w);
  return md;
}

std::string to_csv(const Results& r) {
  return report::to_csv(raw_table(r));
}

Written write_results(const Results& r, const Facts& facts, const fs::path& folder) {
  Written w{folder / "report.html", folder / "report.md", folder / "results.csv", {}};
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
