#include "study/perform.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "data/catalog.h"
#include "data/other_set.h"
#include "eval/judge.h"
#include "fid/fid.h"
#include "methods/method.h"
#include "run/run.h"
#include "train/trainer.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPerform = "study";

// Findings that were made in another way are as good as none.
std::string judging_key(const Judging& j, const std::string& judge, int64_t limit) {
  if (judge == "linear")
    return fmt::format("linear honest, {} epochs, {} rates, {} labels, {} test images", j.probe_epochs,
                       j.probe_rates, limit, j.limit_test);
  if (judge == "knn") return fmt::format("knn paper, {} labels, {} test images", limit, j.limit_test);
  return fmt::format("frechet, {} samples, {} steps", j.frechet_samples, j.frechet_steps);
}

// Of the named sets two are grey and 28 x 28, two in colour and 32 x 32.
bool is_gray(const run::Config& config) {
  return config.data.source == "mnist" || config.data.source == "fmnist";
}

fs::path findings_file(const RunSpec& spec, const std::string& name) {
  std::string file = name;
  std::replace(file.begin(), file.end(), ' ', '_');
  return spec.folder / "study" / (file + ".json");
}

void write_findings(const RunSpec& spec, const std::string& name, const json& j) {
  const auto file = findings_file(spec, name);
  std::error_code ec;
  fs::create_directories(file.parent_path(), ec);  // what goes wrong is said by the write
  core::write_atomically(file, j.dump(2) + "\n", kPerform);
}

std::optional<json> read_json(const fs::path& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  auto j = json::parse(in, nullptr, false);
  if (!j.is_object()) return std::nullopt;
  return j;
}

bool same_config(const RunSpec& spec) {
  std::vector<std::string> warnings;
  const auto file = run::RunFolder{spec.folder}.config();
  if (!fs::exists(file)) return false;
  return digest(run::resolve({run::read_layer(file.string(), warnings)})) == digest(spec.config);
}

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
  auto images = std::make_shared<data::ImageSet>(data::load(spec.config.data).train);
  const run::RunFolder folder{spec.folder};
  // A folder without any checkpoint is one that was killed before it began.
  const bool begun = !run::list_checkpoints(folder.checkpoints()).empty();
  if (!begun) fs::remove_all(spec.folder);
  Watcher watcher(report);
  train::Trainer trainer({.folder = folder,
                          .config = spec.config,
                          .resume = begun,
                          .device = placement.device,
                          .engine = placement.engine},
                         images, watcher);
  return trainer.run(stop).finished;
}

// The checkpoints that make the curve: those kept for good, and the last.
std::vector<run::CheckpointInfo> curve_checkpoints(const run::Run& run) {
  const auto every = run.config().checkpoint.keep_every;
  std::vector<run::CheckpointInfo> out;
  for (auto& c : run.checkpoints()) {
    const bool kept = every > 0 && c.position.epoch % every == 0;
    if (c.position.batch == 0 && c.position.epoch > 0 &&
        (kept || c.position.epoch == run.config().train.epochs))
      out.push_back(c);
  }
  return out;
}

bool judge_run(const RunSpec& spec, const std::string& set, const std::vector<std::string>& judges,
               const engine::Placement& placement, const std::atomic<bool>& stop, const Report& report) {
  const auto run = run::Run::open(spec.folder);
  auto source = data::other_set(spec.config.data, set);
  source.limit = spec.config.data.limit;  // as many labels as there were images to train on
  source.limit_test = spec.judging.limit_test;
  auto sets = data::load(source);
  const auto checkpoints = curve_checkpoints(run);
  if (checkpoints.empty())
    core::run_error(kPerform, fmt::format("{}: has no checkpoint to judge", spec.folder.string()));
  auto first = run.load(checkpoints.front().file);
  const auto bench =
      eval::make_bench(std::move(sets), first.encoder->options().channels, first.image_shape, false);
  eval::JudgeOptions options;
  const auto asked = [&](const char* name) {
    return std::find(judges.begin(), judges.end(), name) != judges.end();
  };
  options.linear = asked("linear");
  options.knn = asked("knn");
  options.probe.epochs = spec.judging.probe_epochs;
  options.probe.rates = eval::ProbeOptions::log_grid(-4, -1, static_cast<int>(spec.judging.probe_rates));
  options.neighbours = eval::knn_protocol("paper");
  options.neighbours.k = std::min<int64_t>(options.neighbours.k, bench.adapted.train.size());

  std::map<std::string, json> points;
  const auto judge_point = [&](run::Model& model, const run::Position& at) {
    engine::place(*model.encoder, model.head.get(), placement);
    for (const auto& row :
         eval::judge(eval::encoder_subject("encoder", model, bench), bench.classes, options)) {
      points[row.judge].push_back({{"epoch", at.epoch},
                                   {"seconds", at.seconds},
                                   {"forward_units", at.forward_units},
                                   {"accuracy", row.score.accuracy},
                                   {"correct", row.score.correct},
                                   {"total", row.score.total}});
    }
  };
  const auto& images = bench.adapted.train;
  const double per_point = static_cast<double>(images.size() + bench.adapted.test.size());
  const double trained = spec.forward_units;
  for (size_t i = 0; i <= checkpoints.size(); ++i) {
    if (stop) return false;
    if (report)
      report(trained + per_point * static_cast<double>(i),
             fmt::format("judging on {}, {}/{}", set, i + 1, checkpoints.size() + 1));
    if (i == 0) {
      auto untrained = run.untrained({images.channels(), images.height(), images.width()});
      judge_point(untrained, {});
    } else {
      auto model = run.load(checkpoints[i - 1].file);
      judge_point(model, checkpoints[i - 1].position);
    }
  }
  for (const auto& [judge, list] : points) {
    const json j = {{"judging", judging_key(spec.judging, judge, spec.config.data.limit)},
                    {"judge", judge},
                    {"on", set},
                    {"points", list}};
    write_findings(spec, curve_name(judge, set), j);
  }
  return true;
}

void measure_frechet(const RunSpec& spec, const engine::Placement& placement, const Report& report) {
  fid::FrechetOptions options;
  options.samples = spec.judging.frechet_samples;
  options.steps = spec.judging.frechet_steps;
  options.init = "buffer";  // the chains of training: from data a model that moves nothing would look best
  options.placement = placement;
  const auto result =
      fid::frechet_of_run(run::Run::open(spec.folder), options, [&](const std::string& what, double) {
        if (report) report(spec.forward_units + spec.judging_units, what);
      });
  const json j = {{"judging", judging_key(spec.judging, "frechet", 0)},
                  {"distance", result.distance},
                  {"floor", result.floor},
                  {"ceiling", result.ceiling},
                  {"samples", result.samples},
                  {"label", result.label}};
  write_findings(spec, "frechet", j);
}

}  // namespace

std::string curve_name(const std::string& judge, const std::string& set) {
  return judge + " on " + set;
}

Findings read_findings(const RunSpec& spec) {
  Findings f;
  try {
    if (!same_config(spec)) return f;
    if (const auto summary = read_json(run::RunFolder{spec.folder}.summary())) {
      f.epochs = summary->value("epochs", int64_t{0});
      f.trained = summary->value("finished", false) && f.epochs >= spec.config.train.epochs;
      f.steps = summary->value("steps", int64_t{0});
      f.rollbacks = summary->value("rollbacks", int64_t{0});
      f.seconds = summary->value("seconds", 0.0);
      f.forward_units = summary->value("forward_units", 0.0);
      f.peak_memory = summary->value("peak_memory_bytes", 0.0);
    }
    for (const auto& set : spec.sets)
      for (const auto& judge : spec.judges) {
        const auto j = read_json(findings_file(spec, curve_name(judge, set)));
        if (!j || j->value("judging", "") != judging_key(spec.judging, judge, spec.config.data.limit))
          continue;
        std::vector<Point> points;
        for (const auto& p : j->at("points"))
          points.push_back({p.at("epoch").get<double>(), p.at("seconds").get<double>(),
                            p.at("forward_units").get<double>(), p.at("accuracy").get<double>(),
                            p.at("correct").get<int64_t>(), p.at("total").get<int64_t>()});
        if (!points.empty()) f.curves[curve_name(judge, set)] = std::move(points);
      }
    if (const auto j = read_json(findings_file(spec, "frechet"));
        spec.frechet && j && j->value("judging", "") == judging_key(spec.judging, "frechet", 0))
      f.frechet = {j->at("distance").get<double>(), j->at("floor").get<double>(),
                   j->at("ceiling").get<double>(), j->at("samples").get<int64_t>(),
                   j->at("label").get<std::string>()};
  } catch (const json::exception&) {
    return f;  // damaged findings are made again
  } catch (const core::Error&) {
    return {};  // so is a damaged configuration
  }
  return f;
}

bool complete(const RunSpec& spec, const Findings& f) {
  if (!f.trained || (spec.frechet && !f.frechet)) return false;
  for (const auto& set : spec.sets)
    for (const auto& judge : spec.judges)
      if (!f.curves.count(curve_name(judge, set))) return false;
  return true;
}

bool perform(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
             const Report& report) {
  if (!read_findings(spec).trained && !train_run(spec, placement, stop, report)) return false;
  for (const auto& set : spec.sets) {
    const auto found = read_findings(spec);
    std::vector<std::string> missing;
    for (const auto& judge : spec.judges)
      if (!found.curves.count(curve_name(judge, set))) missing.push_back(judge);
    if (!missing.empty() && !judge_run(spec, set, missing, placement, stop, report)) return false;
  }
  if (spec.frechet && !read_findings(spec).frechet) {
    if (stop) return false;
    measure_frechet(spec, placement, report);
  }
  return true;
}

std::string unit_kind(const run::Config& config) {
  const auto& m = config.method;
  return fmt::format("{} {} {} {} {}", m.name, m.encoder.arch, m.encoder.width, is_gray(config),
                     m.ebclr.objective.lambda > 0);
}

double measure_unit(const run::Config& config, const engine::EngineOptions& engine) {
  auto options = config.method;
  const bool gray = is_gray(config);
  const int64_t channels = gray ? 1 : 3, size = gray ? 28 : 32;
  const int64_t n =
      std::min<int64_t>(32, config.train.batch_size);  // a unit costs about the same in any batch
  options.encoder.channels = channels;
  options.ebclr.buffer.size = 2 * n;
  options.seed = 0;
  const methods::MethodContext context{.data_proposals =
                                           [&](int64_t count, core::Rng&) {
                                             return torch::rand({count, channels, size, size});
                                           },
                                       .image_shape = {channels, size, size},
                                       .train_images = 100 * n,
                                       .batch = n};
  auto method = methods::make_method(options, context);
  method->train();
  for (auto& encoder : method->encoders()) engine::attach(*encoder, engine);
  const methods::StepInput input{torch::rand({n, channels, size, size}),
                                 torch::rand({n, channels, size, size}), 0, 0};
  double best = 1e300;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    method->step(input).loss.backward();
    method->after_update(input);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) best = std::min(best, seconds);
  }
  return best / (method->forward_units(n) * static_cast<double>(n));
}

json to_json(const RunSpec& spec) {
  const auto& j = spec.judging;
  return {{"config", run::to_yaml(spec.config)},
          {"folder", spec.folder.string()},
          {"title", spec.title},
          {"judges", spec.judges},
          {"sets", spec.sets},
          {"frechet", spec.frechet},
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
  s.frechet = j.at("frechet").get<bool>();
  s.forward_units = j.at("forward_units").get<double>();
  s.judging_units = j.at("judging_units").get<double>();
  const auto& g = j.at("judging");
  s.judging = {g.at(0).get<int64_t>(), g.at(1).get<int64_t>(), g.at(2).get<int64_t>(), g.at(3).get<int64_t>(),
               g.at(4).get<int64_t>()};
  return s;
}

}  // namespace ebclr::study
