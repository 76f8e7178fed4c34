#include "cli/plot_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "plot/plot.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

using Points = std::vector<std::pair<double, double>>;

// Every numeric series of metrics.jsonl against epochs.
std::map<std::string, Points> read_series(const run::Run& run) {
  std::ifstream in(run.folder().metrics());
  if (!in) core::usage_error("plot", fmt::format("{}: has no metrics.jsonl", run.folder().root.string()));
  std::map<std::string, Points> series;
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("epoch") || !j["epoch"].is_number()) continue;
    for (const auto& [key, value] : j.items())
      if (value.is_number()) series[key].emplace_back(j["epoch"].get<double>(), value.get<double>());
  }
  return series;
}

// About sixty points, each the mean of its neighbourhood: a curve to read, not noise.
plot::Series smooth(const std::string& name, const Points& points) {
  plot::Series s{.name = name};
  const size_t group = std::max<size_t>(1, points.size() / 60);
  for (size_t i = 0; i < points.size(); i += group) {
    double x = 0, y = 0;
    const size_t end = std::min(points.size(), i + group);
    for (size_t k = i; k < end; ++k) x += points[k].first, y += points[k].second;
    s.x.push_back(x / static_cast<double>(end - i));
    s.y.push_back(y / static_cast<double>(end - i));
  }
  s.markers = points.size() <= 30;
  return s;
}

void draw(const std::vector<std::string>& folders, const std::string& out) {
  // One run: its terms together. Several runs: one line for each.
  std::vector<plot::Image> panels;
  const auto chart = [&](const std::vector<plot::Series>& lines, const std::string& title,
                         const std::string& y) {
    if (!lines.empty())
      panels.push_back(plot::line_chart(
          lines, {.title = title, .x_label = "epoch", .y_label = y, .width = 520, .height = 380}));
  };
  std::vector<std::pair<std::string, std::map<std::string, Points>>> runs;
  for (const auto& f : folders)
    runs.emplace_back(fs::path(f).lexically_normal().filename().string(), read_series(run::Run::open(f)));
  const auto across = [&](const std::string& key) {
    std::vector<plot::Series> lines;
    for (const auto& [name, series] : runs)
      if (const auto it = series.find(key); it != series.end())
        lines.push_back(smooth(runs.size() == 1 ? key : name, it->second));
    return lines;
  };
  chart(across("loss"), "Loss", "loss");
  if (runs.size() == 1 && runs[0].second.count("energy_data")) {
    chart({smooth("data", runs[0].second.at("energy_data")),
           smooth("samples", runs[0].second.at("energy_samples"))},
          "Energy", "mean energy");
  } else {
    chart(across("gap"), "Energy gap, samples minus data", "gap");
  }
  auto knn = across("knn");
  for (auto& s : knn)
    for (auto& y : s.y) y *= 100;
  chart(knn, "kNN while training", "accuracy %");
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
