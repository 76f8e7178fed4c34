#include "cli/plot_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>

#include "core/error.h"
#include "plot/plot.h"
#include "report/smooth.h"
#include "run/metrics.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

constexpr size_t kPoints = 60;  // of a line: a curve to read, not noise

void draw(const std::vector<std::string>& folders, const std::string& out) {
  // One run: its terms together. Several runs: one line for each.
  std::vector<plot::Image> panels;
  const auto chart = [&](const std::vector<plot::Series>& lines, const std::string& title,
                         const std::string& y) {
    if (!lines.empty())
      panels.push_back(plot::line_chart(
          lines, {.title = title, .x_label = "epoch", .y_label = y, .width = 520, .height = 380}));
  };
  std::vector<std::pair<std::string, std::map<std::string, run::MetricSeries>>> runs;
  for (const auto& f : folders) {
    const auto file = run::Run::open(f).folder().metrics();
    if (!fs::exists(file)) core::usage_error("plot", fmt::format("{}: has no metrics.jsonl", f));
    auto metrics = run::read_metrics(file);
    for (const auto& p : metrics.monitor) {
      metrics.series["knn"].epoch.push_back(p.epoch);
      metrics.series["knn"].value.push_back(100 * p.accuracy);
    }
    runs.emplace_back(fs::path(f).lexically_normal().filename().string(), std::move(metrics.series));
  }
  const auto across = [&](const std::string& key) {
    std::vector<plot::Series> lines;
    for (const auto& [name, series] : runs)
      if (const auto it = series.find(key); it != series.end())
        lines.push_back(report::smooth(runs.size() == 1 ? key : name, it->second, kPoints));
    return lines;
  };
  chart(across("loss"), "Loss", "loss");
  if (runs.size() == 1 && runs[0].second.count("energy_data") && runs[0].second.count("energy_samples")) {
    chart({report::smooth("data", runs[0].second.at("energy_data"), kPoints),
           report::smooth("samples", runs[0].second.at("energy_samples"), kPoints)},
          "Energy", "mean energy");
  } else {
    chart(across("gap"), "Energy gap, samples minus data", "gap");
  }
  chart(across("knn"), "kNN while training", "accuracy %");
  if (panels.empty()) core::usage_error("plot", "nothing to draw: metrics.jsonl is empty");
  plot::write_png(out, plot::side_by_side(panels));
  fmt::print("wrote {}\n", out);
}

}  // namespace

void add_plot_command(CLI::App& app) {
  struct Args {
    std::vector<std::string> runs;
    std::string out = "curves.png";
  };
  auto a = std::make_shared<Args>();
  auto* command = app.add_subcommand("plot", "Curves of one or several runs: loss, energies, kNN");
  command->add_option("RUN", a->runs, "Run folders")->required();
  command->add_option("--out", a->out, "PNG to write")->capture_default_str();
  command->callback([a] { draw(a->runs, a->out); });
}

}  // namespace ebclr::cli
