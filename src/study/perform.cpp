#include "study/perform.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/files.h"
#include "core/json.h"
#include "data/catalog.h"
#include "density/density.h"
#include "eval/run_curve.h"
#include "eval/strangers.h"
#include "fid/fid.h"
#include "run/images.h"
#include "run/run.h"
#include "train/rehearsal.h"
#include "train/trainer.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Passes what the trainer says on as units.
class Watcher : public train::Observer {
 public:
  explicit Watcher(const Report& report) : report_(report) {}
  void on_step(const train::StepReport& r) override {
    if (report_)
      report_(r.position.forward_units,
              fmt::format("epoch {}/{}", r.position.epoch + (r.position.batch > 0 ? 1 : 0),
                          r.total_steps / std::max<int64_t>(1, r.steps_per_epoch)));
  }

 private:
  const Report& report_;
};

bool train_run(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
               const Report& report) {
  const run::RunFolder folder{spec.folder};
  auto sets = run::load_images(folder, spec.config.data);
  // A folder without any checkpoint is one that was killed before it began: the trainer begins anew in it, if
  // nobody else is at it.
  const bool begun = !run::list_checkpoints(folder.checkpoints()).empty();
  if (begun) run::check_same_images(folder, sets.list, spec.config.data.source);
  auto images = std::make_shared<data::ImageSet>(std::move(sets.train));
  Watcher watcher(report);
  train::Trainer trainer({.folder = folder,
                          .config = spec.config,
                          .list = std::move(sets.list),
                          .resume = begun,
                          .device = placement.device,
                          .engine = placement.engine},
                         images, watcher);
  return trainer.run(stop).finished;
}

// Beside the folder, which may be removed and made anew. The system lets go of it when its owner dies.
fs::path lock_file(const RunSpec& spec) {
  return spec.folder.string() + ".lock";
}

// Two studies may want one run: the second waits and then finds it done, or goes elsewhere meanwhile.
std::optional<core::FileLock> take_run(const RunSpec& spec, const std::atomic<bool>& stop,
                                       const Report& report, bool wait) {
  std::error_code ec;
  fs::create_directories(spec.folder.parent_path(), ec);  // what goes wrong is said by the lock
  while (!stop) {
    if (auto lock = core::FileLock::try_take(lock_file(spec), kComponent)) return lock;
    if (!wait) return std::nullopt;
    if (report) report(0, "waiting for another process at the same run");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return std::nullopt;
}

// Thrown through the judges when the worker is asked to end.
struct Stopped {};

bool judge_run(const RunSpec& spec, const std::string& set, const std::vector<std::string>& judges,
               const engine::Placement& placement, const std::atomic<bool>& stop, const Report& report) {
  const auto run = run::Run::open(spec.folder);
  auto options = curve_options(spec, set, judges);
  options.placement = placement;
  options.progress = [&](const std::string&, double) {
    if (stop) throw Stopped{};
  };
  const double per_point = spec.judging_units / static_cast<double>(std::max<size_t>(1, spec.sets.size()));
  options.on_point = [&](size_t i, size_t points) {
    if (stop) throw Stopped{};
    if (report)
      report(spec.forward_units + per_point * static_cast<double>(i) / static_cast<double>(points),
             fmt::format("judging on {}, {}/{}", set, i + 1, points));
  };
  try {
    for (const auto& curve : eval::curve_of_run(run, options).curves) eval::keep_curve(run, curve);
  } catch (const Stopped&) {
    return false;
  }
  return true;
}

void write_measured(const RunSpec& spec, const std::string& judge, const json& j) {
  const auto file = distance_file(spec, judge);
  core::make_folder(file.parent_path(), kComponent);  // a link in its place is not followed
  // The name of a set need not be UTF-8.
  const auto text = j.dump(2, ' ', false, json::error_handler_t::replace);
  core::write_atomically(file, text + "\n", kComponent);
}

// All four scores at once: they share features and sets.
bool measure_strangers(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
                       const Report& report) {
  const auto run = run::Run::open(spec.folder);
  const auto density = density::load_density(run, {.references = 512, .placement = placement});
  auto source = spec.config.data;
  source.limit_test = kStrangers;
  const auto own = data::load(source).test;
  const auto strangers =
      eval::make_strangers(own, {.count = kStrangers, .data_root = spec.config.data.data_root});
  std::vector<eval::StrangerRow> rows;
  try {
    rows = eval::judge_strangers(eval::score_strangers(density, own, strangers, [&](double) {
      if (stop) throw Stopped{};
      if (report) report(spec.forward_units + spec.judging_units, "strangers");
    }));
  } catch (const Stopped&) {
    return false;
  }
  std::string sets;
  for (size_t i = 0; i + 1 < rows.size(); ++i) sets += (sets.empty() ? "" : ", ") + rows[i].name;
  const auto& mean = rows.back();
  for (const auto& [judge, value] : {std::pair{"strangers-energy", mean.energy},
                                     {"strangers-neighbour", mean.neighbour},
                                     {"strangers-mahalanobis", mean.mahalanobis},
                                     {"strangers-combined", mean.combined}})
    write_measured(spec, judge,
                   {{"settings", distance_settings(spec.judging, judge)},
                    {"distance", 100 * value},
                    {"deviation", 0.0},
                    {"floor", 50.0},
                    {"ceiling", 100.0},
                    {"samples", own.size()},
                    {"steps", 0},
                    {"label", fmt::format("mean over {}", sets)}});
  return true;
}

bool measure_distance(const RunSpec& spec, const std::string& judge, const engine::Placement& placement,
                      const std::atomic<bool>& stop, const Report& report) {
  fid::FrechetOptions options;
  options.samples = spec.judging.frechet_samples;
  options.steps = spec.judging.frechet_steps;
  // Not the chains of training: with a high rho most of them are one visit away from a training image.
  options.init = judge == "frechet-data" ? "data" : "uniform";
  options.placement = placement;
  fid::FrechetResult result;
  try {
    result = fid::frechet_of_run(run::Run::open(spec.folder), options, [&](const std::string& what, double) {
      if (stop) throw Stopped{};
      if (report) report(spec.forward_units + spec.judging_units, what);
    });
  } catch (const Stopped&) {
    return false;
  }
  const json j = {{"settings", distance_settings(spec.judging, judge)},
                  {"distance", result.distance},
                  {"deviation", result.deviation},
                  {"floor", result.floor},
                  {"ceiling", result.ceiling},
                  {"samples", result.samples},
                  {"steps", spec.judging.frechet_steps},
                  {"label", result.label}};
  write_measured(spec, judge, j);
  return true;
}

// All that the run lacks, one after the other; false when `stop` was set.
bool do_missing(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
                const Report& report) {
  auto found = read_findings(spec);
  if (complete(spec, found)) return true;
  // What is kept of a run may be its findings alone (tools/results keep): to judge it by more it is trained
  // again.
  const bool has_weights = !run::list_checkpoints(run::RunFolder{spec.folder}.checkpoints()).empty();
  if (!found.trained || !has_weights) {
    std::error_code ec;
    fs::remove(run::RunFolder{spec.folder}.summary(), ec);  // until it has ended again it has not
    if (!train_run(spec, placement, stop, report)) return false;
    // What was said before was said of other weights, and perhaps by other images.
    for (const char* judged : {"eval", "study"}) fs::remove_all(spec.folder / judged, ec);
    found = read_findings(spec);
  }
  for (const auto& set : spec.sets) {
    std::vector<std::string> missing;
    for (const auto& judge : spec.judges)
      if (!is_measured_once(judge) && !found.curves.count(curve_name(judge, set))) missing.push_back(judge);
    if (!missing.empty() && !judge_run(spec, set, missing, placement, stop, report)) return false;
  }
  for (const auto& judge : spec.judges) {
    if (!is_measured_once(judge) || read_findings(spec).distances.count(judge)) continue;
    if (!(is_distance(judge) ? measure_distance(spec, judge, placement, stop, report)
                             : measure_strangers(spec, placement, stop, report)))
      return false;
  }
  return true;
}

}  // namespace

bool is_taken(const RunSpec& spec) {
  const auto file = lock_file(spec);
  std::error_code ec;
  return fs::exists(file, ec) && !core::FileLock::try_take(file, kComponent);
}

Outcome perform(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
                const Report& report, bool wait) {
  const auto lock = take_run(spec, stop, report, wait);
  if (!lock) return stop ? Outcome::kStopped : Outcome::kElsewhere;
  return do_missing(spec, placement, stop, report) ? Outcome::kDone : Outcome::kStopped;
}

std::string unit_kind(const run::Config& config) {
  const auto& m = config.method;
  const auto shape = data::shape_of(config.data);
  return fmt::format("{} {} {} {}x{} {}", m.name, m.encoder.arch, m.encoder.width, shape.channels, shape.side,
                     m.ebclr.objective.lambda > 0);
}

double measure_unit(const run::Config& config, const engine::EngineOptions& engine) {
  auto c = config;
  c.train.batch_size = std::min<int64_t>(32, c.train.batch_size);  // a unit costs about the same in any batch
  const auto shape = data::shape_of(config.data);
  const auto r = train::rehearse(c, {shape.channels, shape.side, shape.side}, {.engine = engine});
  return r.seconds / (r.units_per_image * static_cast<double>(c.train.batch_size));
}

json to_json(const RunSpec& spec) {
  const auto& j = spec.judging;
  return {{"config", run::to_yaml(spec.config)},
          {"folder", spec.folder.string()},
          {"title", spec.title},
          {"judges", spec.judges},
          {"sets", spec.sets},
          {"forward_units", spec.forward_units},
          {"judging_units", spec.judging_units},
          {"judging", {j.probe_epochs, j.probe_rates, j.limit_test, j.frechet_samples, j.frechet_steps}}};
}

RunSpec spec_from_json(const json& j) {
  RunSpec s;
  std::vector<std::string> warnings;
  s.config = run::resolve({run::parse_layer(j.at("config").get<std::string>(), "study", warnings)});
  s.folder = j.at("folder").get<std::string>();
  s.title = j.at("title").get<std::string>();
  s.judges = j.at("judges").get<std::vector<std::string>>();
  s.sets = j.at("sets").get<std::vector<std::string>>();
  s.forward_units = j.at("forward_units").get<double>();
  s.judging_units = j.at("judging_units").get<double>();
  const auto& g = j.at("judging");
  const auto count = [&](size_t i) { return core::whole_number(g.at(i)); };
  s.judging = {count(0), count(1), count(2), count(3), count(4)};
  return s;
}

}  // namespace ebclr::study
