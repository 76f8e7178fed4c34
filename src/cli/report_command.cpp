#include "cli/report_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/commit.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "core/error.h"
#include "core/files.h"
#include "report/run_report.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArgs {
  std::vector<std::string> runs;
  std::string out = "report.html";
  bool no_eval = false, json = false;
  report::RunReportOptions options;
  RuntimeOptions runtime;
};

std::string command_line(const ReportArgs& a) {
  std::string text = "ebclr report";
  for (const auto& r : a.runs) text += " " + command_word(r);
  text += " --out " + command_word(a.out);
  if (a.no_eval) text += " --no-eval";
  return text;
}

std::string utc_minute() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  ::gmtime_r(&now, &tm);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &tm);
  return text;
}

void write_report(ReportArgs& a) {
  const fs::path out = a.out;
  std::error_code error;
  if (fs::is_directory(out, error))
    core::usage_error("report",
                      fmt::format("--out {} is a folder; name a file, e.g. {}/report.html", a.out, a.out));
  auto& o = a.options;
  o.evaluate = !a.no_eval;
  o.facts = {{"command", command_line(a)},
             {"version", fmt::format("ebclr {}, commit {}", EBCLR_VERSION, kCommit)},
             {"machine", report::describe_machine()},
             {"written", utc_minute()}};
  core::check_writable(out, "report");  // before anything takes time
  const auto runtime = apply(a.runtime);
  o.examine.placement = runtime.placement();
  ProgressLine line(a.json);
  o.examine.progress = [&](const std::string& what, double share) { line.show(what, share); };
  const std::vector<fs::path> folders(a.runs.begin(), a.runs.end());
  const auto html = report::run_report(folders, o);
  line.clear();
  core::write_atomically(out, html, "report");
  if (a.json) {
    print_answer(nlohmann::json{{"file", a.out}, {"bytes", html.size()}, {"runs", a.runs}});
  } else {
    fmt::print("wrote {} ({})\n", a.out, core::human_bytes(static_cast<double>(html.size())));
  }
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto a = std::make_shared<ReportArgs>();
  auto* c = app.add_subcommand("report", "One HTML page about one or several runs, to look at in a browser");
  c->add_option("RUN", a->runs, "Run folders; they may still be running")->required();
  c->add_option("--out", a->out, "HTML file to write")->capture_default_str();
  c->add_option("--title", a->options.title, "Title of the page (default: the runs' names)");
  c->add_flag("--no-eval", a->no_eval, "Compute nothing: no confusion matrix, no map; needs no data");
  c->add_option("--eval-train", a->options.examine.train, "Train images of the neighbours (0: all)")
      ->check(kNotNegative)
      ->capture_default_str();
  c->add_option("--eval-test", a->options.examine.test, "Test images of the confusion matrix (0: all)")
      ->check(kNotNegative)
      ->capture_default_str();
  c->add_option("--map-images", a->options.examine.map_images, "Images on the map (0: no map)")
      ->check(CLI::Range(0, 5000))
      ->capture_default_str();
  c->add_option("--data", a->options.examine.data, "Where the runs' folder of images lies now");
  c->add_option("--data-root", a->options.examine.data_root, "Where sets are kept (default: the run's)");
  c->add_option("--seed", a->options.examine.seed, "Seed of the choice of images")->capture_default_str();
  add_runtime_options(*c, a->runtime);
  c->add_flag("--json", a->json, "Print JSON instead of a line");
  c->callback([a] { write_report(*a); });
}

}  // namespace ebclr::cli
