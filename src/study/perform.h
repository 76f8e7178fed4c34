#pragma once
// Carries out one run of a plan: trains (or resumes, or finds it done), judges every kept checkpoint, and
// leaves the findings in the run folder, where a later study finds them again.

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "study/plan.h"

namespace ebclr::study {

/// An accuracy at a point of a run.
struct Point {
  double epoch = 0, seconds = 0, forward_units = 0;
  double accuracy = 0;
  int64_t correct = 0, total = 0;
};

/// A distance of samples to data.
struct FrechetFinding {
  double distance = 0, floor = 0, ceiling = 0;
  int64_t samples = 0;
  std::string label;
};

/// All that is known of a run; what is missing was not judged yet.
struct Findings {
  bool trained = false;
  int64_t epochs = 0, steps = 0, rollbacks = 0;
  double seconds = 0, forward_units = 0, peak_memory = 0;
  std::map<std::string, std::vector<Point>> curves;  ///< by "judge on set"; the first point is untrained
  std::optional<FrechetFinding> frechet;
};

/// Name of a curve among the findings.
std::string curve_name(const std::string& judge, const std::string& set);

/// Reads what a run folder holds of a spec; nothing is trusted that was judged otherwise.
Findings read_findings(const RunSpec& spec);
/// Is there anything left to do?
bool complete(const RunSpec& spec, const Findings& findings);

/// How far a run is, in forward-units, and a word on what it is doing.
using Report = std::function<void(double units, const std::string& doing)>;

/// Does whatever is missing. Returns false when `stop` was set: everything is saved.
bool perform(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
             const Report& report);

/// What the cost of a forward-unit depends on; equal for runs that need to be measured only once.
std::string unit_kind(const run::Config& config);
/// Seconds per forward-unit of this kind of run, from a few steps on noise.
double measure_unit(const run::Config& config, const engine::EngineOptions& engine);

/// Specs travel to worker processes as JSON.
nlohmann::json to_json(const RunSpec& spec);
RunSpec spec_from_json(const nlohmann::json& j);

}  // namespace ebclr::study
