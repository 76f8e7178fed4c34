#include "cli/sample_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/npy.h"
#include "data/other_set.h"
#include "density/samples.h"
#include "eval/features.h"
#include "eval/metrics.h"
#include "plot/plot.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

/// The run's density at a checkpoint.
density::Density load(const run::Run& run, const std::string& checkpoint, const std::string& data_root,
                      const Runtime& runtime, int64_t references, int64_t seed) {
  return density::load_density(run, {.checkpoint = checkpoint,
                                     .data_root = data_root,
                                     .references = references,
                                     .seed = static_cast<uint64_t>(seed),
                                     .placement = runtime.placement()});
}

struct SampleArgs {
  std::string folder, checkpoint = "last", init = "data", out = "samples.png", npy, data_root;
  int64_t count = 64, steps = 100, references = 128, seed = 0;
  bool json = false;
  RuntimeOptions runtime;
};

void sample(const SampleArgs& a) {
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  auto density = load(run, a.checkpoint, a.data_root, runtime, a.references, a.seed);
  density::ChainStarts starts(run, density, a.init, static_cast<uint64_t>(a.seed));
  const auto result =
      density::draw_samples(density, starts.next(a.count).to(runtime.device),
                            {.steps = a.steps, .age = starts.age(), .seed = static_cast<uint64_t>(a.seed)});
  const auto grid = result.samples.to(torch::kCPU);
  std::vector<std::string> captions;
  for (int64_t i = 0; i < grid.size(0); ++i)
    captions.push_back(fmt::format("{:.2f}", result.energy_end[i].item<double>()));
  const int columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(grid.size(0)))));
  plot::write_png(a.out, plot::image_grid(grid, columns, grid.size(2) <= 32 ? 3 : 1, captions,
                                          fmt::format("{} samples after {} steps from {}; energy below each",
                                                      grid.size(0), a.steps, a.init)));
  if (!a.npy.empty()) core::write_npy(a.npy, grid);
  const double before = result.energy_start.mean().item<double>(),
               after = result.energy_end.mean().item<double>();
  if (a.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"out", a.out},
                                              {"count", grid.size(0)},
                                              {"steps", a.steps},
                                              {"init", a.init},
                                              {"energy_start", before},
                                              {"energy_end", after},
                                              {"out_of_range", result.out_of_range}}
                           .dump(2));
  } else {
    fmt::print(
        "{}: {} samples, mean energy {:.3f} -> {:.3f} in {} steps, {:.1f} % of pixels outside [-1, 1]\n",
        a.out, grid.size(0), before, after, a.steps, 100 * result.out_of_range);
  }
}

struct EnergyArgs {
  std::string folder, checkpoint = "last", data, against, out = "energy.csv", plot, data_root;
  int64_t references = 512, limit = 0, seed = 0;
  bool json = false, grayscale = false;
  RuntimeOptions runtime;
};

void energy(const EnergyArgs& a) {
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  auto density = load(run, a.checkpoint, a.data_root, runtime, a.references, a.seed);
  const auto& config = run.config();
  struct Part {
    std::string name;
    data::ImageSet set;
    torch::Tensor energies;
  };
  std::vector<Part> parts;
  for (const auto& name : {a.data.empty() ? config.data.source : a.data, a.against}) {
    if (name.empty()) continue;
    auto source = data::other_set(config.data, name);
    source.limit = source.limit_test = a.limit;
    if (!a.data_root.empty()) source.data_root = a.data_root;
    auto sets = data::load(source);
    auto set = sets.test.size() > 0 ? std::move(sets.test) : std::move(sets.train);
    auto adapted = eval::adapt(std::move(set), density.model.encoder->options().channels,
                               density.model.image_shape, a.grayscale);
    for (const auto& n : adapted.notes) fmt::print(stderr, "note: {}: {}\n", name, n);
    auto e = density::energies(density, adapted.set);
    parts.push_back({name, std::move(adapted.set), e});
  }
  std::string csv = core::csv_line({"set", "image", "file", "label", "energy"});
  for (const auto& p : parts)
    for (int64_t i = 0; i < p.energies.size(0); ++i)
      csv += core::csv_line(
          {p.name, std::to_string(i), p.set.files.empty() ? "" : p.set.files[static_cast<size_t>(i)],
           std::to_string(p.set.labels[i].item<int64_t>()), fmt::format("{}", p.energies[i].item<float>())});
  core::write_atomically(a.out, csv, "energy");
  std::vector<plot::Sample> samples;
  nlohmann::ordered_json j = {{"out", a.out}, {"sets", nlohmann::ordered_json::array()}};
  for (const auto& p : parts) {
    const auto e = p.energies.to(torch::kFloat64).contiguous();
    samples.push_back({p.name, {e.data_ptr<double>(), e.data_ptr<double>() + e.numel()}});
    j["sets"].push_back({{"name", p.name},
                         {"images", e.numel()},
                         {"mean", e.mean().item<double>()},
                         {"std", e.std().item<double>()}});
  }
  const std::string picture = a.plot.empty() ? fs::path(a.out).replace_extension(".png").string() : a.plot;
  plot::write_png(
      picture,
      plot::histogram(samples, 50, {.title = "Energy of images", .x_label = "energy", .y_label = "density"}));
  j["plot"] = picture;
  if (parts.size() == 2) {
    const auto scores = torch::cat({parts[0].energies, parts[1].energies});
    const auto outside = torch::cat({torch::zeros({parts[0].energies.size(0)}, torch::kBool),
                                     torch::ones({parts[1].energies.size(0)}, torch::kBool)});
    j["auroc"] = eval::auroc(scores, outside);
  }
  if (a.json) {
    fmt::print("{}\n", j.dump(2));
    return;
  }
  for (const auto& s : j["sets"])
    fmt::print("{:<16} {} images, energy {:.3f} +- {:.3f}\n", s["name"].get<std::string>(),
               s["images"].get<int64_t>(), s["mean"].get<double>(), s["std"].get<double>());
  if (j.contains("auroc"))
    fmt::print("AUROC of telling {} from {} by energy: {:.3f} (0.5 is chance)\n", parts[1].name,
               parts[0].name, j["auroc"].get<double>());
  fmt::print("wrote {} and {}\n", a.out, picture);
}

}  // namespace

void add_sample_commands(CLI::App& app) {
  auto s = std::make_shared<SampleArgs>();
  auto* sample_command = app.add_subcommand("sample", "Draw images from the model by Langevin dynamics");
  sample_command->add_option("RUN", s->folder, "Run folder")->required();
  sample_command->add_option("--checkpoint", s->checkpoint, "Epoch or last")->capture_default_str();
  sample_command->add_option("--count", s->count, "Images")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sample_command->add_option("--steps", s->steps, "Langevin steps")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  sample_command->add_option("--init", s->init, "Where chains start")
      ->check(CLI::IsMember({"data", "uniform", "buffer"}))
      ->capture_default_str();
  sample_command->add_option("--references", s->references, "Views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sample_command->add_option("--seed", s->seed, "Seed of starts and noise")->check(CLI::NonNegativeNumber);
  sample_command->add_option("--data-root", s->data_root, "Where named sets are kept");
  sample_command->add_option("--out", s->out, "PNG to write")->capture_default_str();
  sample_command->add_option("--npy", s->npy, "Also write the images as .npy");
  sample_command->add_flag("--json", s->json, "Print the outcome as JSON");
  add_runtime_options(*sample_command, s->runtime);
  sample_command->callback([s] { sample(*s); });

  auto e = std::make_shared<EnergyArgs>();
  auto* energy_command =
      app.add_subcommand("energy", "Energy of each image; how well it tells one set from another");
  energy_command->add_option("RUN", e->folder, "Run folder")->required();
  energy_command->add_option("--data", e->data, "Images to judge (default: those of the run)");
  energy_command->add_option("--against", e->against,
                             "Images that do not belong (out-of-distribution AUROC)");
  energy_command->add_option("--checkpoint", e->checkpoint, "Epoch or last")->capture_default_str();
  energy_command->add_option("--limit", e->limit, "At most this many images of each set (0: all)")
      ->check(CLI::NonNegativeNumber);
  energy_command->add_option("--references", e->references, "Views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  energy_command->add_option("--seed", e->seed, "Seed of the reference views")->check(CLI::NonNegativeNumber);
  energy_command->add_option("--data-root", e->data_root, "Where named sets are kept");
  energy_command->add_option("--out", e->out, "CSV to write")->capture_default_str();
  energy_command->add_option("--plot", e->plot, "Histogram PNG (default: beside the CSV)");
  energy_command->add_flag("--grayscale", e->grayscale,
                           "Read colour images as grey where the encoder is grey");
  energy_command->add_flag("--json", e->json, "Print the outcome as JSON");
  add_runtime_options(*energy_command, e->runtime);
  energy_command->callback([e] { energy(*e); });
}

}  // namespace ebclr::cli
