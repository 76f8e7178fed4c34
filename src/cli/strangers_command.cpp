#include "cli/strangers_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "cli/table.h"
#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "density/density.h"
#include "eval/strangers.h"
#include "run/images.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

struct StrangersArgs {
  std::string run, checkpoint = "last", data, data_root, scores;
  int64_t limit = 2000, references = 512;
  uint64_t seed = 0;
  bool json = false;
  RuntimeOptions runtime;
};

// A line for each image of each set, for scores of one's own.
std::string as_csv(const eval::StrangerScores& scores) {
  std::string csv = core::csv_line({"set", "image", "energy", "neighbour", "mahalanobis", "length"});
  const auto add = [&](const eval::SetScores& s) {
    for (int64_t i = 0; i < s.energy.size(0); ++i)
      csv += core::csv_line({s.name, std::to_string(i), fmt::format("{:.9g}", s.energy[i].item<double>()),
                             fmt::format("{:.9g}", s.neighbour[i].item<double>()),
                             fmt::format("{:.9g}", s.mahalanobis[i].item<double>()),
                             fmt::format("{:.9g}", s.length[i].item<double>())});
  };
  add(scores.training);
  add(scores.own);
  for (const auto& s : scores.sets) add(s);
  return csv;
}

void judge_strangers(const StrangersArgs& a) {
  core::check_writable(a.scores, "strangers");  // before anything takes time
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.run);
  const auto density = density::load_density(run, {.checkpoint = a.checkpoint,
                                                   .data_root = a.data_root,
                                                   .data = a.data,
                                                   .references = a.references,
                                                   .seed = a.seed,
                                                   .placement = runtime.placement()});
  for (const auto& n : density.images->notes) fmt::print(stderr, "note: {}\n", n);
  auto source = run.config().data;
  if (!a.data_root.empty()) source.data_root = a.data_root;
  if (!a.data.empty()) source.source = a.data;
  source.limit_test = a.limit;
  const auto own = run::load_pixels(run.folder(), source).test;
  if (own.size() == 0)
    core::usage_error("strangers", fmt::format("{}: the run's images have no test split", a.run));
  const eval::StrangerOptions options{.count = a.limit, .data_root = source.data_root, .seed = a.seed};
  ProgressLine line(a.json);
  const auto show = line.function();
  const auto scores = eval::score_strangers(density, own, eval::make_strangers(own, options),
                                            [&](double share) { show("strangers", share); });
  const auto rows = eval::judge_strangers(scores);
  line.clear();
  if (!a.scores.empty()) core::write_atomically(a.scores, as_csv(scores), "strangers");
  if (a.json) {
    nlohmann::ordered_json j{{"run", a.run}, {"own", own.name}, {"split", own.split}, {"images", own.size()}};
    for (const auto& r : rows)
      j["auroc"].push_back({{"set", r.name},
                            {"energy", r.energy},
                            {"neighbour", r.neighbour},
                            {"mahalanobis", r.mahalanobis},
                            {"combined", r.combined}});
    print_answer(j);
    return;
  }
  fmt::print("AUROC of telling strangers from {} {} images of {} (0.5 is chance)\n\n", own.size(), own.split,
             own.name);
  std::vector<std::vector<std::string>> lines{
      {"strangers", "energy", "neighbour", "Mahalanobis", "combined"}};
  for (const auto& r : rows)
    lines.push_back({r.name, fmt::format("{:.3f}", r.energy), fmt::format("{:.3f}", r.neighbour),
                     fmt::format("{:.3f}", r.mahalanobis), fmt::format("{:.3f}", r.combined)});
  print_table(lines);
}

}  // namespace

void add_strangers_command(CLI::App& eval) {
  auto a = std::make_shared<StrangersArgs>();
  auto* c = eval.add_subcommand(
      "strangers", "Does the model tell images that do not belong? By energy and by distances of features");
  c->add_option("RUN", a->run, "Run folder")->required();
  c->add_option("--checkpoint", a->checkpoint, "Epoch or last")->capture_default_str();
  c->add_option("--data", a->data, "Where the run's folder of images lies now");
  c->add_option("--data-root", a->data_root, "Where named sets are kept");
  c->add_option("--limit", a->limit, "Images of each set")
      ->check(CLI::Range(10, 1000000))
      ->capture_default_str();
  c->add_option("--references", a->references, "Views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  c->add_option("--seed", a->seed, "Of views and strangers")->check(kNotNegative);
  c->add_option("--scores", a->scores, "Write the scores of every image here (CSV)");
  c->add_flag("--json", a->json, "Print as JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { judge_strangers(*a); });
}

}  // namespace ebclr::cli
