#include "cli/sample_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/data_options.h"
#include "cli/eval_options.h"
#include "cli/ranks.h"
#include "cli/runtime.h"
#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/npy.h"
#include "core/text.h"
#include "data/other_set.h"
#include "density/samples.h"
#include "eval/export_features.h"
#include "eval/features.h"
#include "eval/metrics.h"
#include "plot/plot.h"
#include "run/images.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

/// The run's density at a checkpoint.
density::Density load(const run::Run& run, const std::string& checkpoint, const std::string& data_root,
                      const std::string& moved, const Runtime& runtime, int64_t references, int64_t seed) {
  const bool density = density::learns_density(run);
  if (!density && density::learns_classes(run)) {
    fmt::print(stderr,
               "warning: {} learnt classes alone, no density; its energy is that of its logits (finetune "
               "--joint learns both)\n",
               run.folder().root.string());
  } else if (!density) {
    fmt::print(
        stderr,
        "warning: {} was trained by {}, which learns no density; its energies only say how near an image's "
        "projection is to those of train images\n",
        run.folder().root.string(), run.config().method.name);
  }
  return density::load_density(run, {.checkpoint = checkpoint,
                                     .data_root = data_root,
                                     .data = moved,
                                     .references = references,
                                     .seed = static_cast<uint64_t>(seed),
                                     .placement = runtime.placement()});
}

/// What is to be known of the images that define the energy.
void print_notes(const density::Density& density) {
  for (const auto& n : density.images->notes) fmt::print(stderr, "note: {}\n", n);
}

struct SampleArgs {
  std::string folder, checkpoint = "last", init = "data", out = "samples.png", npy, data, data_root;
  int64_t count = 64, steps = 0, references = 512, seed = 0;
  bool json = false;
  RuntimeOptions runtime;
};

/// Chains that start at data or in the buffer are near images already; from noise the way is longer.
int64_t default_steps(const std::string& init) {
  return init == "uniform" ? 1000 : 400;
}

void sample(SampleArgs a) {
  if (a.steps == 0) a.steps = default_steps(a.init);
  plot::check_png_name(a.out);  // before anything takes time
  for (const auto& file : {a.out, a.npy}) core::check_writable(file, "sample");
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  auto density = load(run, a.checkpoint, a.data_root, a.data, runtime, a.references, a.seed);
  print_notes(density);
  density::ChainStarts starts(run, density, a.init, static_cast<uint64_t>(a.seed));
  const auto begin = starts.next(a.count).to(runtime.device);
  const auto result = density::draw_samples(
      density, begin, {.steps = a.steps, .age = starts.age(), .seed = static_cast<uint64_t>(a.seed)});
  // Mean change of a pixel, as a part of the range [-1, 1]: small means that one looks at the starts.
  const double moved = (result.samples - begin).abs().mean().item<double>() / 2;
  const auto grid = result.samples.to(torch::kCPU);
  std::vector<std::string> captions;
  for (int64_t i = 0; i < grid.size(0); ++i)
    captions.push_back(fmt::format("{:.2f}", result.energy_end[i].item<double>()));
  const int columns = static_cast<int>(std::ceil(std::sqrt(static_cast<double>(grid.size(0)))));
  plot::write_png(
      a.out, plot::image_grid(grid, columns, grid.size(2) <= 32 ? 3 : 1, captions,
                              fmt::format("{} samples after {} steps from {}, pixels moved by {:.0f} % of "
                                          "their range; energy below each",
                                          grid.size(0), a.steps, a.init, 100 * moved)));
  if (!a.npy.empty()) core::write_npy(a.npy, grid);
  const double before = result.energy_start.mean().item<double>(),
               after = result.energy_end.mean().item<double>();
  if (a.json) {
    print_answer(nlohmann::ordered_json{{"out", a.out},
                                        {"count", grid.size(0)},
                                        {"steps", a.steps},
                                        {"init", a.init},
                                        {"moved", moved},
                                        {"energy_start", before},
                                        {"energy_end", after},
                                        {"out_of_range", result.out_of_range}});
  } else {
    fmt::print(
        "{}: {} samples, mean energy {:.3f} -> {:.3f} in {} steps, pixels moved by {:.1f} % of their range, "
        "{:.1f} % of "
        "them outside [-1, 1]\n",
        a.out, grid.size(0), before, after, a.steps, 100 * moved, 100 * result.out_of_range);
    if (moved < 0.05)
      fmt::print(
          "note: the chains have hardly moved, so these are little more than the {} they started from; try "
          "more "
          "--steps\n",
          a.init == "data" ? "train views" : "chains");
  }
}

struct EnergyArgs : DataOptions {
  std::string folder, checkpoint = "last", against, out = "energy.csv", plot, split;
  std::vector<std::string> files;
  int64_t references = 512, seed = 0;
  bool json = false;
  RuntimeOptions runtime;
};

struct JudgedSet {
  std::string name;
  data::ImageSet set;
  torch::Tensor energies;
};

/// The options as they are for one of the two sets: which split and which labels is said of the judged
/// images, or of --against where these are pictures named one by one.
EnergyArgs options_for(EnergyArgs a, bool stranger) {
  if (stranger && a.files.empty()) {
    a.split.clear();
    a.labels_csv.clear();
    a.test_fraction = -1;
  }
  if (stranger) a.files.clear();
  return a;
}

/// Which images are meant: single files, the run's own (also where they were moved to), or another set.
data::ImageSet images_for_energy(const EnergyArgs& a, const run::Run& run, const run::Model& model,
                                 const std::string& name, int threads,
                                 std::vector<data::FileProblem>& problems) {
  const auto& own = run.config().data;
  if (!a.files.empty())
    return read_named(a.files, a.image_size > 0 ? a.image_size : model.side, threads, problems);
  auto source = apply(static_cast<const DataOptions&>(a), set_for(run, name));
  auto context = load_context(threads, a.json);
  const std::string split = !a.split.empty() ? a.split : data::is_folder(source.source) ? "all" : "test";
  context.rest = split == "all" && a.limit < 0 && a.limit_test < 0;
  if (a.limit >= 0 && a.limit_test < 0) source.limit_test = a.limit;  // one limit for both splits
  // Another set has a split of its own, and nothing in it is missing or new since training.
  auto sets = name != own.source && !run::is_moved(run, name) ? data::load(source, context)
              : a.labels_csv.empty() ? run::load_pixels(run.folder(), source, context)
                                     : run::load_images(run.folder(), source, context);
  for (const auto& n : sets.train.notes) fmt::print(stderr, "note: {}: {}\n", name, n);
  problems.insert(problems.end(), sets.problems.begin(), sets.problems.end());
  const bool whole = a.split.empty() && sets.test.size() == 0;
  return eval::pick_split(std::move(sets), whole ? "all" : split);
}

/// With pictures that are named one by one, options that choose among images have something to choose from
/// only in --against; --data may say where the run's own images are now.
void check_files(const EnergyArgs& a, bool moved) {
  if (a.files.empty()) return;
  auto sets = static_cast<const DataOptions&>(a);
  if (moved) sets.data.clear();
  std::string other = sets.data.empty() ? "" : "--data";
  if (a.against.empty()) other = a.split.empty() ? choice_of_images(sets) : "--split";
  if (!other.empty())
    core::usage_error("energy", fmt::format("{} chooses among the images of a set and does not go with "
                                            "pictures that are named one by one",
                                            other));
}

void energy(const EnergyArgs& a, const std::shared_ptr<dist::Group>& ranks) {
  const std::string picture = a.plot.empty() ? fs::path(a.out).replace_extension(".png").string() : a.plot;
  plot::check_png_name(picture);
  if (ranks->rank() == 0)
    for (const auto& file : {a.out, picture}) core::check_writable(file, "energy");
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  const bool moved = !a.data.empty() && run::is_moved(run, a.data);
  check_files(a, moved);
  auto density = load(run, a.checkpoint, a.data_root, moved ? a.data : "", runtime, a.references, a.seed);
  const auto& config = run.config();
  std::vector<JudgedSet> parts;
  std::vector<data::FileProblem> problems;
  // Where the run's own images are judged, their notes come with them.
  if (ranks->rank() == 0 && (!a.files.empty() || (!a.data.empty() && !moved))) print_notes(density);
  const std::string first = !a.files.empty() ? a.files[0] : a.data.empty() ? config.data.source : a.data;
  for (const bool stranger : {false, true}) {
    const std::string& name = stranger ? a.against : first;
    if (name.empty()) continue;
    const auto options = options_for(a, stranger);
    // Pictures are read in colour whatever they are; sets with a name have channels of their own.
    const bool pictures = !a.files.empty() || data::is_folder(name);
    auto adapted = eval::adapt(
        images_for_energy(options, run, density.model, name, runtime.threads, problems),
        density.model.encoder->options().channels, density.model.image_shape, a.grayscale || pictures);
    if (ranks->rank() == 0)
      for (const auto& n : adapted.notes) fmt::print(stderr, "note: {}: {}\n", name, n);
    if (!ranks->alone())
      ranks->require_same("run or set of images",
                          fmt::format("{}, step {}, {} images of {}", a.folder, density.model.position.step,
                                      adapted.set.size(), name));
    auto e = density::energies(density, adapted.set, ranks);
    parts.push_back({name, std::move(adapted.set), e});
  }
  if (ranks->rank() != 0) return;
  std::string csv = core::csv_line({"set", "split", "image", "file", "label", "energy"});
  for (const auto& p : parts)
    for (int64_t i = 0; i < p.energies.size(0); ++i)
      csv += core::csv_line(
          {p.name, p.set.splits.empty() ? p.set.split : p.set.splits[static_cast<size_t>(i)],
           std::to_string(i), p.set.files.empty() ? "" : p.set.files[static_cast<size_t>(i)],
           std::to_string(p.set.labels[i].item<int64_t>()), fmt::format("{}", p.energies[i].item<float>())});
  core::write_atomically(a.out, csv, "energy");
  std::vector<plot::Sample> samples;
  nlohmann::ordered_json j = {{"out", a.out},
                              {"references", density.classes ? 0 : density.references.size(0)},
                              {"unreadable", nlohmann::ordered_json::array()},
                              {"sets", nlohmann::ordered_json::array()}};
  for (const auto& p : problems) j["unreadable"].push_back({{"file", p.path}, {"reason", p.reason}});
  if (!a.files.empty())
    for (const auto& p : problems)
      fmt::print(stderr, "note: left out: {}\n", core::one_line(p.path + ": " + p.reason));
  for (const auto& p : parts) {
    const auto e = p.energies.to(torch::kFloat64).contiguous();
    samples.push_back({p.name, {e.data_ptr<double>(), e.data_ptr<double>() + e.numel()}});
    j["sets"].push_back({{"name", p.name},
                         {"images", e.numel()},
                         {"mean", e.mean().item<double>()},
                         {"std", e.numel() > 1 ? e.std().item<double>() : NAN}});  // null
  }
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
    print_answer(j);
    return;
  }
  for (const auto& s : j["sets"])
    fmt::print("{:<16} {}, energy {:.3f}{}\n", core::one_line(s["name"].get<std::string>()),
               s["images"] == 1 ? "1 image" : fmt::format("{} images", s["images"].get<int64_t>()),
               s["mean"].get<double>(),
               s["images"] == 1 ? "" : fmt::format(" +- {:.3f}", s["std"].get<double>()));
  if (j.contains("auroc"))
    fmt::print("AUROC of telling {} from {} by energy: {:.3f} (0.5 is chance)\n", parts[1].name,
               parts[0].name, j["auroc"].get<double>());
  if (density.classes)
    fmt::print("energies are those of the logits of its classes, without views of train images\n");
  else
    fmt::print(
        "energies are against {0} views of train images; training itself compares with the views of a batch, "
        "so its logged energies differ by about log({0} / {1})\n",
        density.references.size(0), config.train.batch_size);
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
  sample_command->add_option("--steps", s->steps, "Langevin steps (default: 400, from uniform noise 1000)")
      ->check(CLI::Range(1, 1000000));
  sample_command->add_option("--init", s->init, "Where chains start")
      ->check(CLI::IsMember({"data", "uniform", "buffer"}))
      ->capture_default_str();
  sample_command->add_option("--references", s->references, "Views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sample_command->add_option("--seed", s->seed, "Seed of starts and noise")->check(kNotNegative);
  sample_command->add_option("--data", s->data, "Where the run's folder of images lies now");
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
  energy_command->add_option("FILE", e->files,
                             "Only these pictures (default: all images of the run, or of --data)");
  add_data_options(*energy_command, *e);
  energy_command
      ->add_option("--split", e->split, "train, test or all (default: all of a folder, test of a named set)")
      ->check(CLI::IsMember({"train", "test", "all"}));
  energy_command->add_option("--against", e->against,
                             "Images that do not belong (out-of-distribution AUROC)");
  energy_command->add_option("--checkpoint", e->checkpoint, "Epoch or last")->capture_default_str();
  energy_command->add_option("--references", e->references, "Views that define the marginal")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  energy_command->add_option("--seed", e->seed, "Seed of the reference views")->check(kNotNegative);
  energy_command->add_option("--out", e->out, "CSV to write")->capture_default_str();
  energy_command->add_option("--plot", e->plot, "Histogram PNG (default: beside the CSV)");
  energy_command->add_flag("--json", e->json, "Print the outcome as JSON");
  add_runtime_options(*energy_command, e->runtime);
  energy_command->callback([e] { with_ranks([&](const auto& ranks) { energy(*e, ranks); }); });
}

}  // namespace ebclr::cli
