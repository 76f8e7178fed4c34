#include "study/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/text.h"
#include "data/other_set.h"
#include "run/run.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::optional<json> read_json(const fs::path& path) {
  try {
    auto j = core::parse_json(core::read_text(path, "study"));
    if (j.is_object()) return j;
  } catch (const core::Error&) {  // not there, or no file that can be read
  }
  return std::nullopt;
}

bool same_config(const RunSpec& spec) {
  std::vector<std::string> warnings;
  const auto file = run::RunFolder{spec.folder}.config();
  std::error_code ec;
  if (!fs::exists(file, ec)) return false;
  return digest(run::resolve({run::read_layer(file.string(), warnings)})) == digest(spec.config);
}

void read_summary(const RunSpec& spec, Findings& f) {
  const auto summary = read_json(run::RunFolder{spec.folder}.summary());
  if (!summary) return;
  const auto count = [&](const char* key) {
    const auto it = summary->find(key);
    return it == summary->end() ? int64_t{0} : core::whole_number(*it);
  };
  f.epochs = count("epochs");
  f.trained = summary->value("finished", false) && f.epochs >= spec.config.train.epochs;
  f.steps = count("steps");
  f.rollbacks = count("rollbacks");
  f.seconds = summary->value("seconds", 0.0);
  f.forward_units = summary->value("forward_units", 0.0);
  f.peak_memory = summary->value("peak_memory_bytes", 0.0);
}

void read_curve_of(const RunSpec& spec, const std::string& judge, const std::string& set, Findings& f) {
  const auto [kind, protocol] = judge_and_protocol(judge);
  const bool own = set == spec.config.data.source;
  const auto file = eval::curve_file(spec.folder, kind, protocol, own ? "" : set);
  std::error_code ec;
  if (!fs::exists(file, ec)) return;
  try {
    auto curve = eval::read_curve(file);
    const auto wanted = eval::settings_of(curve_options(spec, set, {judge}), kind, protocol);
    // One that was made before the training had ended lacks its end.
    if (curve.settings != wanted || curve.data != set || curve.points.empty() ||
        curve.points.back().epoch < static_cast<double>(spec.config.train.epochs))
      return;
    f.judged_on[curve_name(judge, set)] =
        fmt::format("{} train and {} test images", curve.train_images, curve.points.back().total);
    f.curves[curve_name(judge, set)] = std::move(curve.points);
  } catch (const core::Error&) {  // a damaged one is made again
  }
}

void read_distance(const RunSpec& spec, const std::string& judge, Findings& f) {
  const auto j = read_json(distance_file(spec, judge));
  if (!j) return;
  try {
    if (j->at("settings").get<std::string>() != distance_settings(spec.judging, judge)) return;
    // Of very few samples there is none, and no number in the file.
    const auto& deviation = j->at("deviation");
    f.distances[judge] = {.distance = j->at("distance").get<double>(),
                          .floor = j->at("floor").get<double>(),
                          .ceiling = j->at("ceiling").get<double>(),
                          .deviation = deviation.is_number() ? deviation.get<double>()
                                                             : std::numeric_limits<double>::quiet_NaN(),
                          .samples = core::whole_number(j->at("samples")),
                          .steps = core::whole_number(j->at("steps")),
                          .label = j->at("label").get<std::string>()};
  } catch (const json::exception&) {  // a damaged one is made again
  }
}

// The judges that have not spoken of this run yet, or not on all sets.
std::vector<std::string> owed_by(const RunSpec& spec, const Findings& f) {
  std::vector<std::string> out;
  for (const auto& judge : spec.judges) {
    const auto on = [&](const std::string& set) { return f.curves.count(curve_name(judge, set)) > 0; };
    const bool spoke = is_measured_once(judge) ? f.distances.count(judge) > 0
                                               : std::all_of(spec.sets.begin(), spec.sets.end(), on);
    if (!spoke) out.push_back(judge);
  }
  return out;
}

}  // namespace

std::pair<std::string, std::string> judge_and_protocol(const std::string& judge) {
  if (judge == "linear") return {"linear", "honest"};
  if (judge == "knn-dino") return {"knn", "dino"};
  return {"knn", "paper"};
}

eval::CurveOptions curve_options(const RunSpec& spec, const std::string& set,
                                 const std::vector<std::string>& judges) {
  eval::CurveOptions o;
  o.data = data::other_set(spec.config.data, set);
  o.data.limit = spec.config.data.limit;  // as many labels as there were images to train on
  o.data.limit_test = spec.judging.limit_test;
  o.points = eval::CurvePoints::kKept;
  o.judging.linear = false;
  o.judging.neighbours.clear();
  o.judging.lower_k = true;
  for (const auto& judge : judges) {
    const auto [kind, protocol] = judge_and_protocol(judge);
    if (kind == "linear")
      o.judging.linear = true;
    else
      o.judging.neighbours.push_back(eval::knn_protocol(protocol));
  }
  o.judging.probe.epochs = spec.judging.probe_epochs;
  o.judging.probe.rates = eval::ProbeOptions::log_grid(-4, -1, static_cast<int>(spec.judging.probe_rates));
  return o;
}

fs::path distance_file(const RunSpec& spec, const std::string& judge) {
  return spec.folder / "study" / (judge + ".json");
}

std::string distance_settings(const Judging& j, const std::string& judge) {
  if (judge == "strangers-combined")  // named apart from an earlier sum of two scores
    return fmt::format("{} of energy, Mahalanobis distance and length, {} images of each set", judge,
                       kStrangers);
  if (!is_distance(judge)) return fmt::format("{}, {} images of each set", judge, kStrangers);
  return fmt::format("{}, {} samples, {} steps", judge, j.frechet_samples, j.frechet_steps);
}

Findings read_findings(const RunSpec& spec) {
  Findings f;
  try {
    if (!same_config(spec)) return f;
    read_summary(spec, f);
    f.sessions = run::read_sessions(run::RunFolder{spec.folder});
  } catch (const json::exception&) {
    return {};  // a damaged summary or configuration: the run is made again
  } catch (const core::Error&) {
    return {};
  }
  for (const auto& judge : spec.judges) {
    if (is_measured_once(judge)) {
      read_distance(spec, judge, f);
      continue;
    }
    for (const auto& set : spec.sets) read_curve_of(spec, judge, set, f);
  }
  return f;
}

bool complete(const RunSpec& spec, const Findings& f) {
  return f.trained && owed_by(spec, f).empty();
}

std::string problem_of(const RunSpec& spec, const Findings& f, const std::string& failure) {
  if (!failure.empty()) return "failed: " + failure;
  if (!spec.blocked.empty() && !complete(spec, f)) return spec.blocked;
  if (!f.trained) return "not finished";
  const auto owed = owed_by(spec, f);
  return owed.empty() ? "" : "not judged yet by " + core::join(owed, ", ");
}

}  // namespace ebclr::study
