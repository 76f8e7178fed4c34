#include "cli/train_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/answer.h"
#include "cli/finetune_command.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/say.h"
#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/catalog.h"
#include "data/folder.h"
#include "dist/launch.h"
#include "eval/features.h"
#include "run/images.h"
#include "run/provenance.h"
#include "train/advice.h"
#include "train/rehearsal.h"
#include "train/trainer.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

struct TrainArgs {
  ConfigOptions config = {};
  TrainingOptions training = {};
  std::string out = {}, resume = {}, budget = {}, probe = {};
};

// What the command line asks for before anything is measured or loaded.
struct Plan {
  run::Config config = {};
  run::RunFolder folder = {};
  std::vector<run::Layer> layers = {};  // of the user
  bool chosen = false;                  // a folder without a configuration: settings are chosen for it
};

// runs/ebclr-cifar10, or with a number behind it when that is taken; `restarted`: the last that is taken.
fs::path default_folder(const run::Config& c, bool restarted) {
  // A folder's own name, also of "photos/" and ".".
  const auto folder = fs::absolute(c.data.source).lexically_normal();
  const std::string source = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  const fs::path base =
      fs::path("runs") / fmt::format("{}-{}", c.method.name, source.empty() ? "images" : source);
  fs::path last;
  for (int i = 1;; ++i) {
    fs::path candidate = i == 1 ? base : fs::path(base.string() + fmt::format("-{}", i));
    if (!fs::exists(candidate)) return restarted && !last.empty() ? last : candidate;
    last = candidate;
  }
}

run::Layer probe_layer(const std::string& probe) {
  std::error_code ec;
  if (!fs::exists(probe, ec))
    core::usage_error("train", fmt::format("--probe {}: no such folder or CSV", probe));
  return {"--probe", {{"monitor.probe", fs::weakly_canonical(probe, ec).string()}}};
}

// Only the length of a run and the place of its images, labels and probe may change on the way; anything else
// would not be the same run.
void check_change(const run::Layer& layer, const run::Config& own) {
  const auto& [key, value] = layer.values[0];
  const std::set<std::string> free = {"train.epochs", "data.root", "data.source", "data.cache"};
  const bool moved = (key == "data.labels_csv" && !own.data.labels_csv.empty()) ||
                     (key == "monitor.probe" && !own.monitor.probe.empty());
  if (!free.contains(key) && !moved)
    core::usage_error("train", fmt::format("{} cannot change {} of a run that has begun", layer.origin, key));
  std::error_code ec;
  if (moved && !fs::exists(value, ec))
    core::usage_error("train", fmt::format("{} {}: no such file", layer.origin, value));
}

Plan plan_resume(const TrainArgs& a, std::vector<std::string>& warnings) {
  if (!a.config.config.empty() || !a.out.empty() || !a.budget.empty())
    core::usage_error(
        "train",
        "--resume takes everything from the run folder; --config, --out and --budget do not go with it");
  Plan p{.folder = {a.resume}};
  std::error_code ec;
  if (fs::is_directory(a.resume, ec)) train::check_run_folder(p.folder, /*resume=*/true);
  const auto run = run::Run::open(a.resume);
  p.layers = {run::read_run_layer(run.folder().config())};
  auto changes = layers_of(a.config, warnings);
  if (!a.probe.empty()) changes.push_back(probe_layer(a.probe));
  for (const auto& layer : changes) {
    check_change(layer, run.config());
    p.layers.push_back(layer);
  }
  p.config = run::resolve(p.layers);
  return p;
}

Plan plan_new(const TrainArgs& a, bool restarted, std::vector<std::string>& warnings) {
  Plan p;
  p.layers = layers_of(a.config, warnings);
  if (!a.probe.empty()) p.layers.push_back(probe_layer(a.probe));
  p.config = run::resolve(p.layers);
  if (p.config.data.source.empty())
    core::usage_error("train",
                      "no images: give --data NAME|DIR or a configuration with data.source (try --config "
                      "quick/ebclr_fmnist)");
  p.chosen = data::is_folder(p.config.data.source) && a.config.config.empty();
  if (!a.budget.empty() && !p.chosen)
    core::usage_error("train",
                      "--budget chooses settings for --data FOLDER without --config; give --epochs instead");
  if (!a.budget.empty()) train::parse_duration(a.budget);  // before anything is read or measured
  p.folder.root = a.out.empty() ? default_folder(p.config, restarted) : fs::path(a.out);
  return p;
}

// What would end a new run after minutes of reading and measuring.
void check_beginning(const Plan& p, const TrainArgs& a) {
  const bool resume = !a.resume.empty();
  train::check_run_folder(p.folder, resume);
  if (resume) return;
  core::check_writable(p.folder.config(), "train");
}

// What the command line says, the same on all ranks. A launcher that starts the same command again after a
// failure means: go on.
Plan make_plan(TrainArgs& a, dist::Group& ranks, std::vector<std::string>& warnings) {
  const bool restarted = dist::restart_count(dist::process_environment()) > 0;
  Plan p;
  if (a.resume.empty()) {
    p = plan_new(a, restarted, warnings);
    std::error_code ec;
    if (restarted && ranks.any(ranks.rank() == 0 && fs::exists(p.folder.config(), ec)))
      a.config = {}, a.out = a.budget = a.probe = "", a.resume = ranks.gather_text(p.folder.root.string())[0];
  }
  if (!a.resume.empty()) p = plan_resume(a, warnings);
  if (ranks.alone()) return p;
  ranks.require_same("configuration", run::to_yaml(p.config));
  ranks.require_same("--out", a.out);
  // A relative path means the one of rank 0, and so does the first name that is free.
  p.folder.root = ranks.gather_text(fs::absolute(p.folder.root).string())[0];
  return p;
}

// The images, read first by one rank of each host: it downloads and decodes for the others.
data::TrainTest load_shared(const Plan& p, bool resume, dist::Group& ranks,
                            const data::LoadContext& context) {
  const auto launch = dist::find_launch(dist::process_environment());
  const bool first = !launch || launch->local_rank == 0;
  const auto load = [&] {
    return resume ? run::load_to_resume(p.folder, p.config, context)
                  : run::load_images(p.folder, p.config.data, context);
  };
  data::TrainTest sets;
  if (first) sets = load();
  ranks.meet();
  if (!first) sets = load();
  if (!ranks.alone()) ranks.require_same("set of images", run::describe_images(sets.train));
  return sets;
}

// Rank 0's configuration for all: it has measured how fast this machine is.
run::Config rank_0s(const run::Config& config, dist::Group& ranks) {
  if (ranks.alone()) return config;
  std::vector<std::string> warnings;
  return run::resolve({run::parse_layer(ranks.gather_text(run::to_yaml(config))[0], "rank 0", warnings)});
}

// Puts advice below what the user said; the reasons for values that the user overrides are not printed.
void take_advice(Plan& p, const train::Advice& advice, std::vector<run::Layer>& chosen, bool quiet) {
  chosen.push_back({"chosen for these images", advice.values});
  auto all = chosen;
  all.insert(all.end(), p.layers.begin(), p.layers.end());
  p.config = run::resolve(all);
  if (quiet) return;
  for (const auto& r : train::reasons_left(advice, p.layers)) fmt::print("  {}\n", r);
  std::fflush(stdout);  // what follows takes long and goes to stderr
}

// Settings from the size of the images.
void choose_settings(Plan& p, std::vector<run::Layer>& chosen, bool quiet) {
  const auto survey = data::survey(p.config.data.source);
  if (!quiet)
    fmt::print("{}: {} pictures; chosen for them (--config or --set change it):\n",
               core::one_line(p.config.data.source), survey.files);
  take_advice(
      p, train::advise({.median_side = survey.median_side, .image_size = p.config.data.image_size}, p.config),
      chosen, quiet);
}

// Batch from the images that could be read; epochs, buffer and logs from the machine's speed and the time
// that may be spent.
void choose_length(Plan& p, std::vector<run::Layer>& chosen, const data::ImageSet& images,
                   const Runtime& runtime, const std::string& budget, bool quiet, int ranks) {
  const std::vector<int64_t> shape = {images.channels(), images.height(), images.width()};
  const double seconds = train::parse_duration(budget.empty() ? "30m" : budget);
  take_advice(p, train::advise_batch(images.size()), chosen, quiet);
  take_advice(p, train::advise_ranks(p.config, ranks), chosen, quiet);
  // A tenth for views, optimizer and logs. A batch is shared by the ranks; what they tell each other takes
  // some of that time.
  const double step = 1.1 * train::rehearse(p.config, shape, runtime.placement()).seconds / ranks;
  take_advice(p, train::fit_budget(p.config, images.size(), shape, step, seconds), chosen, quiet);
  const double all =
      step * static_cast<double>(p.config.train.epochs *
                                 std::max<int64_t>(1, images.size() / p.config.train.batch_size));
  const auto end =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) + static_cast<time_t>(all);
  std::tm tm{};
  ::localtime_r(&end, &tm);
  char clock[32];
  std::strftime(clock, sizeof clock, "%H:%M", &tm);
  if (quiet) return;
  fmt::print("expected end: about {} ({} of training)\n", clock, core::human_seconds(all));
  std::fflush(stdout);
}

// A folder of labelled pictures that are among those to learn from.
bool probe_is_trained_on(const run::Config& c) {
  if (!data::is_folder(c.monitor.probe) || !data::is_folder(c.data.source)) return false;
  const auto inside = fs::path(c.monitor.probe).lexically_relative(c.data.source);
  return !inside.empty() && *inside.begin() != "..";
}

// By its own labels.
bool can_be_watched(const data::TrainTest& sets) {
  return sets.train.labelled() && (sets.test.size() == 0 || sets.test.labelled());
}

void train(TrainArgs a, const std::shared_ptr<dist::Group>& ranks) {
  const bool leads = ranks->rank() == 0;
  if (!ranks->alone())
    ranks->require_same("program", fmt::format("{} (code {})", run::this_version(), run::this_code()));
  std::vector<std::string> warnings;
  Plan p = make_plan(a, *ranks, warnings);
  const bool resume = !a.resume.empty();
  if (leads) check_beginning(p, a);
  const auto runtime = apply(a.training.runtime);
  TrainProgress shown(a.training.quiet);
  train::Observer unseen;
  train::Observer& progress = leads ? shown : unseen;
  for (const auto& w : warnings) progress.on_warning(w);
  const bool silent = a.training.silent() || !leads;
  std::vector<run::Layer> chosen;
  if (p.chosen) choose_settings(p, chosen, silent);
  p.config.data = run::absolute(p.config.data);

  auto sets = load_shared(p, resume, *ranks, load_context(runtime.threads, silent));
  if (resume) run::check_same_images(p.folder, sets.list, p.config.data.source);
  for (const auto& n : sets.train.notes) progress.on_warning(n);
  if (!resume && probe_is_trained_on(p.config))
    progress.on_warning(
        fmt::format("--probe {} lies in the folder of the train images: what is watched was learnt from",
                    p.config.monitor.probe));
  if (!resume && p.config.monitor.knn_every > 0 && p.config.monitor.probe.empty() && !sets.train.labelled())
    core::usage_error(
        "train",
        fmt::format("monitor.knn_every needs labels, and {} has images without; give --probe FOLDER|CSV "
                    "or set it to 0",
                    sets.train.name));
  if (p.chosen) {
    if (leads) choose_length(p, chosen, sets.train, runtime, a.budget, silent, ranks->world());
    p.config = rank_0s(p.config, *ranks);
    p.config.data = run::absolute(p.config.data);
  }
  // Watched by default where there is something to watch by.
  if (!resume && (p.chosen || !a.probe.empty()) && p.config.monitor.knn_every == 0 &&
      (can_be_watched(sets) || !a.probe.empty()))
    p.config.monitor.knn_every = std::max<int64_t>(1, p.config.train.epochs / 10);
  perform({.config = p.config, .folder = p.folder, .resume = resume, .sets = std::move(sets)}, a.training,
          runtime, progress, ranks);
}

// Where to look next.
void print_next(const std::string& folder, bool labelled, bool classes) {
  fmt::print("run folder: {}\n", core::one_line(folder));
  const auto root = command_word(folder);
  if (classes) {
    fmt::print("next: ebclr classify {} --data FOLDER --out predictions.csv\n", root);
  } else if (labelled) {
    fmt::print("next: ebclr eval knn {}\n", root);
  } else {
    fmt::print(
        "next: ebclr report {} --out report.html   (neighbours, clusters and a map of your images)\n"
        "      ebclr embed {} --out features.npy --csv\n",
        root, root);
  }
}

}  // namespace

void continue_run(const std::string& folder, const ConfigOptions& changes, const TrainingOptions& options) {
  with_ranks(
      [&](const auto& ranks) { train({.config = changes, .training = options, .resume = folder}, ranks); },
      /*announce=*/false);
}

void perform(Training t, const TrainingOptions& o, const Runtime& runtime, train::Observer& progress,
             const std::shared_ptr<dist::Group>& ranks) {
  const bool leads = ranks->rank() == 0;
  auto images = std::make_shared<data::ImageSet>(std::move(t.sets.train));
  const std::string root = t.folder.root.string();
  // Before there is a folder: a run whose probe cannot be read has not begun.
  const auto tell = [&](const std::string& text) { progress.on_warning(text); };
  const auto monitor = !leads ? eval::KnnMonitor{}
                       : t.resume
                           ? eval::monitor_to_resume(t.config, *images, t.sets.test, tell, runtime.threads)
                           : eval::monitor_of(t.config, *images, t.sets.test, runtime.threads);
  LivePage page(leads ? o.watch : WatchOptions{}, {t.folder.root}, root);
  protect_work(ranks->alone() ? 0 : 5);  // from here on there is a run
  train::Trainer trainer({.folder = t.folder,
                          .config = t.config,
                          .list = std::move(t.sets.list),
                          .resume = t.resume,
                          .device = runtime.device,
                          .engine = runtime.engine,
                          .ranks = ranks,
                          .loader_threads = runtime.threads},
                         images, progress);
  for (const auto& problem : t.sets.problems)
    trainer.log(fmt::format("unreadable: {}: {}", problem.path, problem.reason));
  if (monitor) trainer.set_monitor([&] { return monitor(trainer.method().encoder()); });
  const auto outcome = trainer.run(interrupted());
  std::optional<index::Tuned> tuned;
  if (leads && outcome.finished && t.config.method.name == methods::kSupervised)
    tuned = judge_run(t.folder, t.config, trainer.method(), *images, t.sets.test, runtime);
  if (o.json && leads) {
    nlohmann::ordered_json j = {{"run", root},
                                {"finished", outcome.finished},
                                {"saved", outcome.saved},
                                {"step", outcome.position.step},
                                {"epoch", outcome.position.epoch},
                                {"seconds", outcome.position.seconds},
                                {"forward_units", outcome.position.forward_units},
                                {"loss", outcome.loss},
                                {"unreadable", nlohmann::ordered_json::array()}};
    for (const auto& f : t.sets.problems) j["unreadable"].push_back({{"file", f.path}, {"reason", f.reason}});
    if (tuned) add_tuned(j, *tuned);
    print_answer(j);
  }
  if (!outcome.finished) {
    if (leads)
      say("\ninterrupted at step {}; {}. Continue with:\n  ebclr {} --resume {}\n", outcome.position.step,
          outcome.saved ? "everything is saved"
                        : "this state was not sound and is not saved, it goes on from the checkpoint before",
          t.config.method.name == methods::kSupervised ? "finetune" : "train", command_word(root));
    throw core::Error(core::ExitCode::kInterrupted, "", "");
  }
  if (o.silent() || !leads) return;
  if (tuned) print_tuned(*tuned);
  print_next(root, images->labelled(), tuned.has_value());
}

void add_training_options(CLI::App& command, TrainingOptions& o) {
  command.add_flag("--quiet", o.quiet, "Warnings and errors only");
  command.add_flag("--json", o.json, "Print the outcome as JSON");
  add_watch_options(command, o.watch);
  add_runtime_options(command, o.runtime);
}

void add_train_command(CLI::App& app) {
  auto a = std::make_shared<TrainArgs>();
  auto* command = app.add_subcommand("train", "Learn a representation");
  add_config_options(*command, a->config);
  command->add_option("--out", a->out, "Run folder (default: runs/<method>-<data>)");
  command->add_option("--resume", a->resume, "Continue the run in this folder");
  command->add_option(
      "--budget", a->budget,
      "With --data FOLDER and no --config: time that training may take, e.g. 90s, 30m, 1h30m; a number alone "
      "means minutes (default: 30m)");
  command->add_option(
      "--probe", a->probe,
      "Labelled folder, or CSV of path,label, to watch training by; apart from the train images (with "
      "--resume: where the run's own is now)");
  add_training_options(*command, a->training);
  command->callback([a] { with_ranks([&](const auto& ranks) { train(*a, ranks); }, /*announce=*/false); });
}

}  // namespace ebclr::cli
