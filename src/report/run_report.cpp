#include "report/run_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "core/threads.h"
#include "report/pictures.h"
#include "report/smooth.h"

namespace ebclr::report {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNone = "\u2013";
constexpr size_t kMaxPictures = 6;        // of chains per run: a page stays well below 3 MB
constexpr size_t kMaxMatrixClasses = 20;  // beyond, a table of counts is no help

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f}", 100 * share) : kNone;
}

std::string large(double v) {
  if (!std::isfinite(v) || v <= 0) return kNone;
  constexpr std::pair<double, const char*> kSuffixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [unit, suffix] : kSuffixes)
    if (v >= unit) return fmt::format("{:.3g}{}", v / unit, suffix);
  return fmt::format("{:.3g}", v);
}

double of_summary(const RunRecord& r, const char* key, double otherwise) {
  if (r.state != RunState::kFinished || !r.summary.is_object()) return otherwise;
  const auto it = r.summary.find(key);
  return it != r.summary.end() && it->is_number() ? it->get<double>() : otherwise;
}

Cell state_cell(const RunRecord& r) {
  switch (r.state) {
    case RunState::kFinished:
      return {"finished"};
    case RunState::kGaveUp:
      return {"gave up", Tone::kBad, r.metrics.events.back().reason};
    case RunState::kUnfinished:
      return {"unfinished", Tone::kMuted, "running, or interrupted and resumable"};
    case RunState::kEmpty:
      break;
  }
  return {"not begun", Tone::kMuted};
}

/// The judgement of a judge about the newest weights that it has judged; of several the last; or null.
const Judgement* newest_judgement(const RunRecord& r, const std::string& judge) {
  const auto epoch = [](const Judgement& g) { return std::isfinite(g.epoch) ? g.epoch : 0; };
  const Judgement* best = nullptr;
  for (const auto& g : r.judgements) {
    if (g.judge != judge || g.data != r.run.config().data.source) continue;
    if (best == nullptr || epoch(g) >= epoch(*best)) best = &g;
  }
  return best;
}

/// An accuracy, with the epoch of its weights where the run has newer ones.
std::string with_age(double accuracy, const std::string& older) {
  return older.empty() ? percent(accuracy) : fmt::format("{} ({})", percent(accuracy), older);
}

/// The best-founded accuracy of a judge: from a file of the run folder, else computed for this page, else the
/// monitor's.
Cell accuracy_cell(const RunRecord& r, const Examination& examined, const std::string& judge) {
  if (const auto* g = newest_judgement(r, judge)) {
    const auto older = older_weights(r, g->epoch, g->step);
    return {with_age(g->accuracy, older), Tone::kPlain,
            fmt::format("{} ({}) in {}{}", judge == "knn" ? "kNN" : judge, g->protocol, g->source,
                        older.empty() ? "" : ", of older weights: " + older)};
  }
  if (judge != "knn") return {kNone};
  if (examined.confusion) return {percent(examined.accuracy), Tone::kPlain, examined.how};
  if (!r.metrics.monitor.empty()) {
    const auto& last = r.metrics.monitor.back();
    return {with_age(last.accuracy, older_weights(r, last.epoch)), Tone::kMuted,
            fmt::format("the online monitor after epoch {:g}, on a part of the images", last.epoch)};
  }
  return {kNone};
}

Table overview(const std::vector<RunRecord>& runs, const std::vector<Examination>& examined) {
  Table t{"",
          {"run", "method", "data", "state", "epochs", "steps", "wall-clock", "forward-units", "final loss",
           "kNN %", "linear %"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& r = runs[i];
    const auto& c = r.run.config();
    const double epochs = of_summary(r, "epochs", r.metrics.epoch);
    const double seconds = of_summary(r, "seconds", r.metrics.seconds);
    const double loss = of_summary(r, "loss", r.metrics.last("loss"));
    const double done = std::round(100 * epochs) / 100;
    t.rows.push_back(
        {r.name, c.method.name, c.data.source + (c.data.limit > 0 ? fmt::format(" ({})", c.data.limit) : ""),
         state_cell(r),
         done < static_cast<double>(c.train.epochs) ? fmt::format("{:g} of {}", done, c.train.epochs)
                                                    : fmt::format("{:g}", done),
         fmt::format("{:.0f}", of_summary(r, "steps", static_cast<double>(r.metrics.step))),
         seconds > 0 ? core::human_seconds(seconds) : kNone,
         large(of_summary(r, "forward_units", r.metrics.forward_units)),
         std::isfinite(loss) ? fmt::format("{:.4g}", loss) : kNone, accuracy_cell(r, examined[i], "knn"),
         accuracy_cell(r, examined[i], "linear")});
  }
  // A column that no run has anything for is left out.
  for (const char* optional : {"linear %", "kNN %"}) {
    const auto c =
        static_cast<size_t>(std::find(t.columns.begin(), t.columns.end(), optional) - t.columns.begin());
    if (!std::all_of(t.rows.begin(), t.rows.end(), [&](const auto& row) { return row[c].text == kNone; }))
      continue;
    t.columns.erase(t.columns.begin() + static_cast<std::ptrdiff_t>(c));
    for (auto& row : t.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
  }
  return t;
}

/// Where the accuracies of the overview come from: hints do not show on a phone or on paper.
std::string sources(const Table& overview) {
  // Runs that were judged alike are named together.
  std::vector<std::pair<std::string, std::vector<std::string>>> said;
  for (const auto& row : overview.rows) {
    for (size_t c = 1; c < row.size(); ++c) {
      if (!overview.columns[c].ends_with(" %") || row[c].hint.empty()) continue;
      auto it = std::find_if(said.begin(), said.end(), [&](const auto& s) { return s.first == row[c].hint; });
      if (it == said.end()) it = said.insert(said.end(), {row[c].hint, {}});
      it->second.push_back(row[0].text);
    }
  }
  std::string text = said.empty() ? "" : "Accuracies are from ";
  for (size_t k = 0; k < said.size(); ++k) {
    text += (k > 0 ? "; " : "") + said[k].first;
    if (said.size() > 1) text += " (" + core::join(said[k].second, ", ") + ")";
  }
  return text.empty() ? text : text + ".";
}

void say_notes(Page& page, const std::vector<RunRecord>& runs, const std::vector<Examination>& examined) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& r = runs[i];
    for (const auto& e : r.metrics.events) {
      page.callout(e.kind == "gave_up" ? Tone::kBad : Tone::kPlain,
                   fmt::format("{}: {} at step {}", r.name,
                               e.kind == "gave_up"    ? "gave up"
                               : e.kind == "rollback" ? "rolled back"
                                                      : e.kind,
                               e.step),
                   e.reason);
    }
    auto notes = r.notes;
    notes.insert(notes.end(), examined[i].notes.begin(), examined[i].notes.end());
    if (!notes.empty())
      page.callout(Tone::kMuted, fmt::format("{}: some parts are missing", r.name),
                   core::join(notes, ". ") + ".");
  }
}

/// One line per run; the colour of a run is the same in every chart.
struct Lines {
  Chart chart;
  void add(plot::Series series, size_t run) {
    chart.series.push_back(std::move(series));
    chart.colours.push_back(static_cast<int>(run));
  }
};

Chart across(const std::vector<RunRecord>& runs, const std::string& key, const std::string& title,
             const std::string& y_label, double factor = 1) {
  Lines lines{{title, "epoch", y_label}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto it = runs[i].metrics.series.find(key);
    if (it == runs[i].metrics.series.end()) continue;
    auto s = smooth(runs[i].name, it->second);
    for (auto* values : {&s.y, &s.low, &s.high})
      for (double& v : *values) v *= factor;
    lines.add(std::move(s), i);
  }
  return lines.chart;
}

void training_charts(Page& page, const std::vector<RunRecord>& runs) {
  const auto has = [&](const std::string& key) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const RunRecord& r) { return r.metrics.series.count(key) > 0; });
  };
  page.heading("Training");
  if (!has("loss")) {
    page.text("There are no training curves.");
    return;
  }
  std::vector<Chart> main{across(runs, "loss", "Loss", "loss")};
  if (has("energy_data") || has("energy_samples")) {
    Lines energy{{"Energy", "epoch", "mean energy"}};
    for (size_t i = 0; i < runs.size(); ++i) {
      for (const auto& [key, label] :
           {std::pair{"energy_data", "data"}, std::pair{"energy_samples", "samples"}}) {
        const auto it = runs[i].metrics.series.find(key);
        if (it == runs[i].metrics.series.end()) continue;
        auto s = smooth(runs.size() == 1 ? label : fmt::format("{}, {}", runs[i].name, label), it->second);
        s.dashed = std::string(label) == "samples";
        s.low.clear(), s.high.clear();  // two bands over each other say nothing
        energy.add(std::move(s), i);
      }
    }
    main.push_back(energy.chart);
  }
  page.charts(main);
  page.text(
      "Lines are means of neighbouring records where there are many; the shaded band is their range. Losses "
      "of "
      "different methods are not comparable.");
  std::vector<Chart> health;
  const auto add = [&](const char* key, const char* title, const char* label, double factor = 1) {
    if (has(key)) health.push_back(across(runs, key, title, label, factor));
  };
  add("gap", "Energy gap", "mean energy, samples minus data");
  add("out_of_range", "Samples out of range", "% of pixels outside [-1, 1]", 100);
  add("spread", "Spread of projections", "deviation per dimension");
  add("output_norm", "Output norm", "mean norm before the unit sphere");
  add("grad_norm", "Gradient norm", "norm");
  add("lr", "Learning rate", "learning rate");
  add("sgld_steps", "Langevin steps", "steps per visit");
  add("images_per_second", "Speed", "images per second");
  if (!health.empty()) {
    page.begin_details("Health: gap, spread, norms, learning rate, speed");
    page.charts(health);
    page.end_details();
  }
}

void accuracy_charts(Page& page, const std::vector<RunRecord>& runs) {
  // Curves judged alike share their charts.
  std::map<std::string, std::vector<std::pair<size_t, std::vector<eval::CurvePoint>>>> groups;
  std::vector<std::string> order;
  const auto put = [&](const std::string& key, size_t run, std::vector<eval::CurvePoint> points) {
    if (!groups.count(key)) order.push_back(key);
    groups[key].emplace_back(run, std::move(points));
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const auto& c : runs[i].curves) {
      put(fmt::format("{} ({}) on {}{}", c.judge == "knn" ? "kNN" : c.judge, c.protocol, c.data,
                      c.train_images > 0
                          ? fmt::format(", {} train and {} test images", c.train_images, c.test_images)
                          : ""),
          i, c.points);
    }
    std::vector<eval::CurvePoint> watched;
    for (const auto& p : runs[i].metrics.monitor)
      watched.push_back({p.epoch, p.seconds, p.forward_units, p.accuracy});
    if (!watched.empty())
      put(fmt::format("kNN while training, on a part of {}", runs[i].run.config().data.source), i,
          std::move(watched));
  }
  if (groups.empty()) return;
  page.heading("Accuracy");
  for (const auto& key : order) {
    page.heading(key, 3);
    Lines epochs{{"Over epochs", "epoch", "accuracy, %"}},
        seconds{{"Over wall-clock", "seconds", "accuracy, %"}},
        units{{"Over forward-units", "forward-units", "accuracy, %"}};
    for (const auto& [run, points] : groups[key]) {
      const plot::Series empty{.name = runs[run].name, .markers = true};
      plot::Series e = empty, s = empty, u = empty;
      for (const auto& p : points) {
        e.x.push_back(p.epoch), s.x.push_back(p.seconds), u.x.push_back(p.forward_units);
        for (auto* line : {&e, &s, &u}) line->y.push_back(100 * p.accuracy);
      }
      epochs.add(std::move(e), run), seconds.add(std::move(s), run), units.add(std::move(u), run);
    }
    page.charts({epochs.chart, seconds.chart, units.chart});
  }
}

void chain_pictures(Page& page, const std::vector<RunRecord>& runs) {
  bool said = false;
  for (const auto& r : runs) {
    if (r.chains.empty()) continue;
    std::vector<Picture> pictures;
    std::vector<std::string> damaged;
    const size_t n = std::min(kMaxPictures, r.chains.size());
    for (size_t k = 0; k < n; ++k) {
      // Evenly over time, the first and the last among them.
      const auto& c = r.chains[n == 1 ? r.chains.size() - 1 : k * (r.chains.size() - 1) / (n - 1)];
      try {
        pictures.push_back({shrink(core::read_bytes(c.file, "report"), 500, c.file.filename().string()),
                            fmt::format("{}, chains after epoch {}", r.name, c.epoch)});
      } catch (const core::Error& e) {
        damaged.push_back(e.what());
      }
    }
    if (!said) page.heading("Chains over time");
    if (!said)
      page.text(
          "Samples of the energy model in the replay buffer; the same places of the buffer in every "
          "picture.");
    said = true;
    if (runs.size() > 1) page.heading(r.name, 3);
    if (!pictures.empty()) page.pictures(pictures);
    if (!damaged.empty())
      page.callout(Tone::kMuted, "Some pictures are damaged", core::join(damaged, ". ") + ".");
  }
}

/// What a matrix too large for a table still tells: the pairs that are mistaken most.
Table mistakes(const Matrix& m) {
  struct Pair {
    size_t truth, taken;
    int64_t count, total;
  };
  std::vector<Pair> pairs;
  for (size_t r = 0; r < m.names.size(); ++r) {
    int64_t total = 0;
    for (int64_t v : m.counts[r]) total += v;
    for (size_t c = 0; c < m.names.size(); ++c)
      if (r != c && m.counts[r][c] > 0) pairs.push_back({r, c, m.counts[r][c], total});
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.count > b.count; });
  Table t{m.caption + ": most frequent mistakes", {"truth", "taken for", "images", "of"}};
  for (size_t k = 0; k < std::min<size_t>(15, pairs.size()); ++k) {
    t.rows.push_back({m.names[pairs[k].truth], m.names[pairs[k].taken], std::to_string(pairs[k].count),
                      std::to_string(pairs[k].total)});
  }
  return t;
}

void confusions(Page& page, const std::vector<RunRecord>& runs, const std::vector<Examination>& examined) {
  bool said = false;
  const auto show = [&](Matrix m) {
    if (!said) page.heading("Confusion");
    said = true;
    if (m.names.size() > kMaxMatrixClasses) {
      page.table(mistakes(m));
    } else {
      page.matrix(m);
    }
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    if (examined[i].confusion) {
      Matrix m = *examined[i].confusion;
      m.caption = fmt::format("{}: {} % ({} to {}). {}", runs[i].name, percent(examined[i].accuracy),
                              percent(examined[i].low), percent(examined[i].high), examined[i].how);
      show(std::move(m));
      continue;
    }
    for (const auto& g : runs[i].judgements) {
      if (g.confusion.empty()) continue;
      const auto older = older_weights(runs[i], g.epoch, g.step);
      show({fmt::format("{}: {} %. {} ({}) on {}, from {}{}", runs[i].name, percent(g.accuracy), g.judge,
                        g.protocol, g.data, g.source, older.empty() ? "" : ", of older weights: " + older),
            g.names, g.confusion});
    }
  }
}

void maps(Page& page, const std::vector<RunRecord>& runs, const std::vector<Examination>& examined) {
  bool said = false;
  std::vector<PointMap> all;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!examined[i].map) continue;
    if (!said) {
      page.heading("Map of the features");
      page.text(
          "Images that the encoder finds alike lie near each other. Point at one, or tap it, to see it "
          "and its name; with the keyboard, arrows go through them.");
      said = true;
    }
    all.push_back(*examined[i].map);
    all.back().title = fmt::format("{}: {}", runs[i].name, all.back().title);
  }
  if (all.size() == 1) page.map(all[0]);
  if (all.size() > 1) page.maps(all);
}

void configurations(Page& page, const std::vector<RunRecord>& runs) {
  page.heading("Configuration");
  Table t;
  if (runs.size() == 1) {
    const auto& c = runs[0].run.config();
    const auto plain = run::resolve({{"method", {{"method.name", c.method.name}}}});
    t.caption = fmt::format("What differs from the defaults of {}", c.method.name);
    t.columns = {"key", "this run", "default"};
    for (const auto& f : run::fields())
      if (f.get(c) != f.get(plain)) t.rows.push_back({f.key, f.get(c), Cell(f.get(plain), Tone::kMuted)});
  } else {
    t.caption = "Keys whose values differ between the runs";
    t.columns = {"key"};
    for (const auto& r : runs) t.columns.push_back(r.name);
    for (const auto& f : run::fields()) {
      std::set<std::string> values;
      std::vector<Cell> row{f.key};
      for (const auto& r : runs) {
        values.insert(f.get(r.run.config()));
        row.emplace_back(f.get(r.run.config()));
      }
      if (values.size() > 1) t.rows.push_back(std::move(row));
    }
  }
  if (t.rows.empty()) {
    page.text(runs.size() == 1 ? "All values are defaults." : "The runs have the same configuration.");
  } else {
    page.table(t);
  }
  for (const auto& r : runs) {
    page.begin_details(fmt::format("All of {}", r.name));
    page.code(run::to_yaml(r.run.config()));
    page.end_details();
  }
}

void say_provenance(Page& page, const std::vector<RunRecord>& runs) {
  std::vector<run::NamedSessions> named;
  for (const auto& r : runs) named.push_back({r.name, r.sessions});
  const auto warnings = run::provenance_warnings(named);
  if (!warnings.empty())
    page.callout(Tone::kMuted, "What trained these runs", core::join(warnings, ". ") + ".");
}

}  // namespace

std::string describe_machine() {
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return fmt::format("{}, {} cores, {} of memory", core::processor_name(), core::available_cores(),
                     core::human_bytes(memory));
}

namespace {

// What the features say without labels: neighbours and groups of images.
void sheets(Page& page, const std::vector<RunRecord>& runs, const std::vector<Examination>& examined) {
  bool said = false;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!examined[i].neighbours && !examined[i].clusters) continue;
    if (!said) page.heading("What looks alike to the encoder");
    said = true;
    if (runs.size() > 1) page.heading(runs[i].name, 3);
    if (examined[i].neighbours) page.picture(examined[i].neighbours->image, examined[i].neighbours->caption);
    if (examined[i].clusters) page.picture(examined[i].clusters->image, examined[i].clusters->caption);
  }
}

void unreadable_files(Page& page, const std::vector<RunRecord>& runs,
                      const std::vector<Examination>& examined) {
  for (size_t i = 0; i < runs.size(); ++i) {
    if (examined[i].unreadable.empty()) continue;
    page.begin_details(
        fmt::format("{}: {} file(s) could not be read", runs[i].name, examined[i].unreadable.size()));
    page.code(core::join(examined[i].unreadable, "\n"));
    page.end_details();
  }
}

bool any_labels(const std::vector<Examination>& examined) {
  return std::any_of(examined.begin(), examined.end(),
                     [](const Examination& e) { return e.confusion.has_value(); });
}

}  // namespace

std::string run_report(const std::vector<fs::path>& folders, const RunReportOptions& options) {
  if (folders.empty()) core::usage_error("report", "no run was given; name one or more run folders");
  const auto runs = read_records(folders);
  std::vector<Examination> examined(runs.size());
  for (size_t i = 0; i < runs.size() && options.evaluate; ++i)
    examined[i] = examine(runs[i], options.examine);

  std::vector<std::string> names;
  for (const auto& r : runs) names.push_back(r.name);
  std::string title = options.title;
  if (title.empty())
    title = runs.size() == 1   ? names[0]
            : runs.size() <= 3 ? core::join(names, ", ")
                               : fmt::format("{} runs", runs.size());
  std::set<std::string> methods, sets;
  for (const auto& r : runs)
    methods.insert(r.run.config().method.name), sets.insert(r.run.config().data.source);
  Page page(title, fmt::format("{} on {}", core::join({methods.begin(), methods.end()}, ", "),
                               core::join({sets.begin(), sets.end()}, ", ")));
  page.heading("Overview");
  const auto table = overview(runs, examined);
  page.table(table);
  if (const auto text = sources(table); !text.empty()) page.text(text);
  say_notes(page, runs, examined);
  unreadable_files(page, runs, examined);
  // Without labels pictures are what there is to judge by: they come first.
  const bool labels = any_labels(examined);
  if (!labels) {
    sheets(page, runs, examined);
    maps(page, runs, examined);
  }
  training_charts(page, runs);
  accuracy_charts(page, runs);
  chain_pictures(page, runs);
  confusions(page, runs, examined);
  if (labels) {
    sheets(page, runs, examined);
    maps(page, runs, examined);
  }
  configurations(page, runs);
  page.heading("How this was made");
  say_provenance(page, runs);
  auto facts = options.facts;
  for (const auto& r : runs) {
    auto lines = r.log;
    if (!r.sessions.empty()) lines.push_back("trained by " + r.sessions.back().text());
    if (r.summary.is_object() && r.summary.contains("ended") && r.summary["ended"].is_string())
      lines.push_back("ended " + r.summary["ended"].get<std::string>());
    if (!lines.empty()) facts.emplace_back(r.name, core::join(lines, "; "));
  }
  page.facts(facts);
  return page.html();
}

}  // namespace ebclr::report
