#pragma once
// Runs a plan in worker processes, so that a run that dies takes nothing with it and several can go on at
// once. A worker is told its run by a file and answers with lines of JSON on its standard output.

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "study/plan.h"

namespace ebclr::study {

/// Where a run stands.
enum class RunState {
  kWaiting,
  kRunning,
  kElsewhere,  ///< another process is at it, here or on another host
  kDone,
  kFailed,
  kBlocked,
  kStopped
};

struct RunStatus {
  RunState state = RunState::kWaiting;
  double units = 0;          ///< done of forward_units + judging_units
  std::string doing = {};    ///< "epoch 3/20"
  std::string failure = {};  ///< one line
  bool foreign = false;      ///< done, or failed, by another process
};

struct WorkerOptions {
  int jobs = 1;
  std::filesystem::path scratch;  ///< specs and logs of the workers
  /// Words of the command that carries out the run described by a file.
  std::function<std::vector<std::string>(const std::filesystem::path& spec)> command;
  /// Called whenever something changed, and at least every second.
  std::function<void(const std::vector<RunStatus>&)> watch = {};
};

/// What a worker answers with when it finds that another process is at its run.
inline constexpr int kElsewhereExit = 75;

/// Carries out every run that is neither complete nor blocked. Runs that other processes are at, on this or
/// other hosts with the same folders, are left to them, and taken over if these die. After `stop` the workers
/// are asked to save and end. Failures are remembered beside the run folder until a later try succeeds; one
/// that cannot be written down is in the status alone.
std::vector<RunStatus> run_plan(const Plan& plan, const WorkerOptions& options,
                                const std::atomic<bool>& stop);

/// The failures that were remembered, one for each run of the plan; empty where there is none.
std::vector<std::string> remembered_failures(const Plan& plan);

/// One line for the parent.
std::string progress_line(double units, const std::string& doing);

}  // namespace ebclr::study
