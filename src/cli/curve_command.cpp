#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/eval_command.h"
#include "cli/eval_options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "core/error.h"
#include "core/files.h"
#include "eval/compare.h"
#include "eval/run_curve.h"
#include "plot/plot.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct CurveArgs {
  EncoderOptions encoder;
  JudgingOptions judging;
  std::string judge = "knn", protocol, plot;
};

plot::Image draw_curve(const eval::Curve& curve, const std::vector<eval::Row>& rows, const std::string& run) {
  plot::Series series{.name = curve.method};
  series.markers = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    series.x.push_back(curve.points[i].epoch);
    series.y.push_back(curve.points[i].accuracy);
    series.low.push_back(rows[i].score.interval.low);
    series.high.push_back(rows[i].score.interval.high);
  }
  return plot::line_chart(
      {series}, {.title = fmt::format("{} on {} ({}, {})", run, curve.data, curve.judge, curve.protocol),
                 .x_label = "epochs",
                 .y_label = "test accuracy"});
}

json to_json(const eval::CurvePoint& p, const eval::Interval& interval) {
  return {{"epoch", p.epoch},
          {"seconds", p.seconds},
          {"forward_units", p.forward_units},
          {"accuracy", p.accuracy},
          {"interval95", {interval.low, interval.high}}};
}

void run_curve(CurveArgs& a) {
  auto& source = a.encoder;
  const bool knn = a.judge == "knn";
  if (!a.protocol.empty()) {
    if (knn)
      a.judging.knn_protocols = {a.protocol};
    else
      a.judging.linear_protocol = a.protocol;
  }
  if (!a.plot.empty()) plot::check_png_name(a.plot);  // before anything takes time
  const auto run = source.open();
  for (const auto& file : {eval::curve_file(run.folder().root, a.judge, "paper"), fs::path(a.plot)})
    core::check_writable(file, "eval");
  ProgressLine line(source.json);
  const auto result = eval::curve_of_run(run, {.data = source.source(run),
                                               .judging = a.judging.options(!knn, knn),
                                               .grayscale = source.grayscale,
                                               .placement = source.runtime.placement(),
                                               .progress = line.function()});
  line.clear();
  const auto& curve = result.curves.at(0);
  const auto& rows = result.rows.at(0);
  const auto file = eval::keep_curve(run, curve);
  const auto csv = fs::path(file).replace_extension(".csv");
  const fs::path picture = a.plot.empty() ? fs::path(file).replace_extension(".png") : fs::path(a.plot);
  plot::write_png(picture, draw_curve(curve, rows, source.run));
  if (source.json) {
    json out{{"run", source.run},
             {"method", curve.method},
             {"data", curve.data},
             {"judge", curve.judge},
             {"protocol", curve.protocol},
             {"protocol_means", rows.front().label},
             {"files", {file.string(), csv.string(), picture.string()}},
             {"notes", result.notes}};
    for (size_t i = 0; i < rows.size(); ++i)
      out["points"].push_back(to_json(curve.points[i], rows[i].score.interval));
    print_answer(out);
    return;
  }
  fmt::print("{} on {}, {} ({})\n\n", source.run, curve.data, curve.judge, rows.front().label);
  std::vector<std::vector<std::string>> lines{
      {"epoch", "seconds", "forward-units", "accuracy %", "95 % interval"}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& p = curve.points[i];
    lines.push_back(
        {i == 0 ? "untrained" : fmt::format("{:g}", p.epoch), fmt::format("{:.1f}", p.seconds),
         fmt::format("{:.3g}", p.forward_units), percent(p.accuracy),
         fmt::format("{} .. {}", percent(rows[i].score.interval.low), percent(rows[i].score.interval.high))});
  }
  print_table(lines);
  fmt::print("\nwritten: {}, {}, {}\n", file.string(), csv.string(), picture.string());
}

struct CompareArgs {
  std::vector<std::string> runs;
  std::string reference, judge = "knn", protocol, plot;
  bool json = false;
};

plot::Image draw_comparison(const eval::Comparison& c, const std::vector<std::string>& runs) {
  const auto chart = [&](const char* label, double eval::CurvePoint::*x) {
    std::vector<plot::Series> lines;
    for (size_t i = 0; i < runs.size(); ++i) {
      plot::Series s{.name =
                         fmt::format("{} ({})", c.curves[i].method, fs::path(runs[i]).filename().string())};
      s.markers = true;
      for (const auto& p : c.curves[i].points) {
        s.x.push_back(p.*x);
        s.y.push_back(p.accuracy);
      }
      lines.push_back(std::move(s));
    }
    return plot::line_chart(lines, {.title = fmt::format("{} ({}) on {}", c.judge, c.protocol, c.data),
                                    .x_label = label,
                                    .y_label = "test accuracy",
                                    .width = 520,
                                    .height = 400});
  };
  return plot::side_by_side({chart("epochs", &eval::CurvePoint::epoch),
                             chart("seconds of training", &eval::CurvePoint::seconds),
                             chart("forward-units", &eval::CurvePoint::forward_units)});
}

// A ratio as its interval [low, high]; high is null where the target was never reached.
json to_json(const std::optional<eval::Bracket>& b) {
  if (!b) return nullptr;
  return {b->low, std::isfinite(b->high) ? json(b->high) : json(nullptr)};
}

void run_compare(const CompareArgs& a) {
  const auto c = eval::compare({.runs = {a.runs.begin(), a.runs.end()},
                                .reference = a.reference,
                                .judge = a.judge,
                                .protocol = a.protocol});
  if (!a.plot.empty()) plot::write_png(a.plot, draw_comparison(c, a.runs));
  if (a.json) {
    json out{{"reference", a.runs[c.reference]}, {"data", c.data},   {"judge", c.judge},
             {"protocol", c.protocol},           {"notes", c.notes}, {"runs", json::array()}};
    for (size_t i = 0; i < c.results.size(); ++i) {
      const auto& e = c.results[i];
      out["runs"].push_back({{"run", a.runs[i]},
                             {"method", c.curves[i].method},
                             {"final_accuracy", e.target},
                             {"void_because", e.void_because},
                             {"reached", e.reached.has_value()},
                             {"efficiency_epochs", to_json(e.epochs)},
                             {"efficiency_seconds", to_json(e.seconds)},
                             {"efficiency_forward_units", to_json(e.forward_units)}});
    }
    if (!a.plot.empty()) out["picture"] = a.plot;
    print_answer(out);
    return;
  }
  fmt::print(
      "Relative efficiency on {} ({}, {}): what {} needed to reach each run's final accuracy,\n"
      "as a part of all that run spent. Below 1: the reference is quicker in that currency. (0.2, 0.3] "
      "means\n"
      "between two checkpoints: more than 0.2, at most 0.3.\n\n",
      c.data, c.judge, c.protocol, a.runs[c.reference]);
  std::vector<std::vector<std::string>> lines{
      {"run", "method", "final accuracy %", "reached at epoch", "epochs", "seconds", "forward-units"}};
  const auto shown = [](const std::optional<eval::Bracket>& b) {
    return b ? eval::to_text(*b) : std::string("-");
  };
  for (size_t i = 0; i < c.results.size(); ++i) {
    const auto& e = c.results[i];
    lines.push_back({a.runs[i] + (i == c.reference ? " (reference)" : ""), c.curves[i].method,
                     percent(e.target),
                     e.reached                ? fmt::format("{:g}", e.reached->epoch)
                     : e.void_because.empty() ? "never"
                                              : "-",
                     shown(e.epochs), shown(e.seconds), shown(e.forward_units)});
  }
  print_table(lines);
  fmt::print("\n");
  for (size_t i = 0; i < c.results.size(); ++i)
    if (!c.results[i].void_because.empty() && i != c.reference)
      fmt::print("{}: no figure: {}\n", a.runs[i], c.results[i].void_because);
  for (const auto& n : c.notes) fmt::print("note: {}\n", n);
  if (!a.plot.empty()) fmt::print("written: {}\n", a.plot);
}

}  // namespace

void add_curve_command(CLI::App& eval) {
  auto o = std::make_shared<CurveArgs>();
  auto* c =
      eval.add_subcommand("curve", "Every kept checkpoint: accuracy against epochs, seconds, forward-units");
  o->encoder.add(*c);
  c->remove_option(c->get_option("--checkpoint"));
  c->add_option("--judge", o->judge, "knn or linear")
      ->check(CLI::IsMember({"knn", "linear"}))
      ->capture_default_str();
  c->add_option("--protocol", o->protocol,
                "Protocol of the judge: paper, dino, moco (knn); honest, paper (linear)");
  c->add_option("--plot", o->plot, "PNG of the curve (default: beside the curve in the run folder)");
  o->judging.add_k(*c);
  c->add_option("--probe-epochs", o->judging.epochs, "Epochs of the probe")->capture_default_str();
  c->add_option("--rates", o->judging.rates, "Learning rates of the probe")->capture_default_str();
  c->add_flag("--standardise", o->judging.standardise, "Scale features to mean 0, deviation 1");
  c->add_option("--seed", o->judging.seed, "Seed of splits, batches and first weights")
      ->capture_default_str();
  c->callback([o] { run_curve(*o); });
}

void add_compare_command(CLI::App& app) {
  auto o = std::make_shared<CompareArgs>();
  auto* c = app.add_subcommand("compare", "Relative efficiency of runs, from their curves");
  c->add_option("RUN", o->runs, "Run folders with a curve (ebclr eval curve RUN)")->required();
  c->add_option("--reference", o->reference,
                "Run that the others are measured against (default: the first EBCLR run)");
  c->add_option("--judge", o->judge, "knn or linear")
      ->check(CLI::IsMember({"knn", "linear"}))
      ->capture_default_str();
  c->add_option("--protocol", o->protocol,
                "Protocol of the judge (default: paper for knn, honest for linear)");
  c->add_option("--plot", o->plot, "PNG of the curves against epochs, seconds and forward-units");
  c->add_flag("--json", o->json, "Print JSON instead of a table");
  c->callback([o] { run_compare(*o); });
}

}  // namespace ebclr::cli
