#include "cli/fid_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/progress.h"
#include "cli/runtime.h"
#include "core/error.h"
#include "core/files.h"
#include "fid/fid.h"
#include "plot/plot.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

struct FidArgs {
  std::string folder, inception, data_root, out;
  fid::FrechetOptions options;
  bool json = false;
  RuntimeOptions runtime;
};

void write_grid(const std::string& file, const fid::FrechetResult& r, const fid::FrechetOptions& o) {
  const int columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(r.grid.size(0)))));
  plot::write_png(file, plot::image_grid(r.grid, columns, r.grid.size(2) <= 32 ? 3 : 1, {},
                                         fmt::format("{} of {} samples after {} steps from {}",
                                                     r.grid.size(0), r.samples, o.steps, o.init)));
}

void print_json(const FidArgs& a, const run::Run& run, const fid::FrechetResult& r) {
  nlohmann::ordered_json j = {{"run", a.folder},
                              {"method", run.config().method.name},
                              {"trained_on", run.config().data.source},
                              {"epoch", r.epoch},
                              {"label", r.label},
                              {"is_fid", r.inception},
                              {"measured_by", r.measured_by},
                              {"dimensions", r.dimensions},
                              {"data", r.data},
                              {"against", r.against},
                              {"samples", r.samples},
                              {"steps", a.options.steps},
                              {"init", a.options.init},
                              {"references", r.references},
                              {"distance", r.distance},
                              {"deviation", r.deviation},
                              {"start", r.start},
                              {"floor", r.floor},
                              {"ceiling", r.ceiling},
                              {"energy_start", r.energy_start},
                              {"energy_end", r.energy_end},
                              {"out_of_range", r.out_of_range},
                              {"seed", a.options.seed},
                              {"notes", r.notes}};
  if (!r.inception) {
    j["classifier_accuracy"] = r.classifier_accuracy;
    j["classifier_cached"] = r.classifier_cached;
  }
  if (!a.out.empty()) j["out"] = a.out;
  print_answer(j);
}

void print_distance(const FidArgs& a, const run::Run& run, const fid::FrechetResult& r) {
  const bool views = r.against == "views";
  fmt::print("{}\n", r.label);
  if (!r.inception)
    fmt::print("(not an FID: its features are those of a classifier of {}; --inception FILE gives the FID)\n",
               r.data);
  fmt::print("{} ({}, trained on {}, epoch {}) against {} real {} of {}\n\n", a.folder,
             run.config().method.name, run.config().data.source, r.epoch, r.references, r.against, r.data);
  const std::vector<std::pair<std::string, double>> rows = {
      {fmt::format("{} samples, {} steps from {}", r.samples, a.options.steps, a.options.init), r.distance},
      {"its deviation by the choice of samples", r.deviation},
      {"the same chains before the first step", r.start},
      {fmt::format("floor: {} other real {}", views ? r.samples : r.floor_sources, r.against), r.floor},
      {fmt::format("ceiling: {} images of uniform noise", r.samples), r.ceiling}};
  for (const auto& [name, value] : rows) fmt::print("{:<48} {:>12.4g}\n", name, value);
  fmt::print("\nmean energy {:.3f} -> {:.3f}, {:.1f} % of pixels outside [-1, 1] (clamped)\n", r.energy_start,
             r.energy_end, 100 * r.out_of_range);
  fmt::print("measured by: {}{}\n", r.measured_by, r.classifier_cached ? " (kept from before)" : "");
  for (const auto& n : r.notes) fmt::print("note: {}\n", n);
  if (!a.out.empty()) fmt::print("wrote {}\n", a.out);
}

void fid_of_run(FidArgs a) {
  if (!a.out.empty()) plot::check_png_name(a.out);  // before anything takes time
  core::check_writable(a.out, "fid");
  const auto runtime = apply(a.runtime);
  a.options.placement = runtime.placement();
  a.options.inception = a.inception;
  a.options.data_root = a.data_root;
  const auto run = run::Run::open(a.folder);
  catch_interrupts();
  fid::FrechetResult result;
  {
    ProgressLine line(a.json);
    result = fid::frechet_of_run(run, a.options, [&](const std::string& what, double share) {
      if (interrupted()) throw core::Error(core::ExitCode::kInterrupted, "fid", "interrupted");
      line.show(what, share);
    });
  }
  if (!a.out.empty()) write_grid(a.out, result, a.options);
  a.json ? print_json(a, run, result) : print_distance(a, run, result);
}

}  // namespace

void add_fid_command(CLI::App& app) {
  auto a = std::make_shared<FidArgs>();
  auto& o = a->options;
  auto* c = app.add_subcommand(
      "fid", "Frechet distance between samples of the model and real images (FID with an Inception file)");
  c->add_option("RUN", a->folder, "Run folder")->required();
  c->add_option("--data", o.data, "Set by name or folder of images (default: the run's own)");
  c->add_option("--samples", o.samples, "Images drawn from the model (a paper's FID takes 10,000 or more)")
      ->check(CLI::Range(2, 10000000))
      ->capture_default_str();
  c->add_option("--inception", a->inception,
                "TorchScript file with 2048 features (docs/fid.md): the standard FID");
  c->add_option("--inception-range", o.inception_range, "Pixels that it reads: auto, 0,1 or -1,1 or 0,255")
      ->check(CLI::IsMember({"auto", "0,1", "-1,1", "0,255"}))
      ->capture_default_str();
  c->add_option("--steps", o.steps, "Langevin steps of each sample")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  c->add_option("--init", o.init, "Where chains start")
      ->check(CLI::IsMember({"data", "uniform", "buffer"}))
      ->capture_default_str();
  c->add_option("--against", o.against,
                "Real images as views (augmented as in training: p(v)) or as they are")
      ->check(CLI::IsMember({"views", "images"}))
      ->capture_default_str();
  c->add_option("--reference-images", o.reference_images, "Real images to compare with, at most")
      ->check(CLI::Range(2, 10000000))
      ->capture_default_str();
  c->add_option("--references", o.marginal_views, "Views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  c->add_option("--limit", o.limit, "At most this many images of each split of the set (0: all)")
      ->check(kNotNegative)
      ->capture_default_str();
  c->add_option("--checkpoint", o.checkpoint, "Epoch or last")->capture_default_str();
  c->add_option("--seed", o.seed, "Seed of starts, noise, views and the choice of images")
      ->capture_default_str();
  c->add_option("--data-root", a->data_root, "Where sets and the classifier are kept");
  c->add_option("--out", a->out, "Also write a grid of samples as PNG");
  c->add_flag("--json", a->json, "Print the outcome as JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { fid_of_run(*a); });
}

}  // namespace ebclr::cli
