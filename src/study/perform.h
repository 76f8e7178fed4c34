#pragma once
// Carries out one run of a plan: trains (or resumes, or finds it done), judges every kept checkpoint, and
// leaves the findings in the run folder, where a later study finds them again.

#include <atomic>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/engine.h"
#include "study/findings.h"
#include "study/plan.h"

namespace ebclr::study {

/// How far a run is, in forward-units, and a word on what it is doing.
using Report = std::function<void(double units, const std::string& doing)>;

/// What became of a run.
enum class Outcome {
  kDone,
  kStopped,    ///< `stop` was set; everything is saved
  kElsewhere,  ///< another process is at it, here or on another host
};

/// Does whatever is missing. A run that another process is at is waited for, or left alone without `wait`.
Outcome perform(const RunSpec& spec, const engine::Placement& placement, const std::atomic<bool>& stop,
                const Report& report, bool wait = true);

/// Whether a process, here or on another host with the same folders, is at this run now.
bool is_taken(const RunSpec& spec);

/// What the cost of a forward-unit depends on; equal for runs that need to be measured only once.
std::string unit_kind(const run::Config& config);
/// Seconds per forward-unit of this kind of run, from a few steps on noise.
double measure_unit(const run::Config& config, const engine::EngineOptions& engine);

/// Specs travel to worker processes as JSON.
nlohmann::json to_json(const RunSpec& spec);
RunSpec spec_from_json(const nlohmann::json& j);

}  // namespace ebclr::study
