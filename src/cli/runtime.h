#pragma once
// What every command that computes has in common: device, threads, engine, interruption.

#include <torch/types.h>

#include <atomic>
#include <string>

#include "engine/engine.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

struct RuntimeOptions {
  std::string device = "auto", engine = "auto";
  int threads = 0;  ///< 0: the cores that the process may use, divided by the processes started with it
};

/// Adds --device, --engine and --threads.
void add_runtime_options(CLI::App& command, RuntimeOptions& options);

/// Applied options.
struct Runtime {
  torch::Device device = torch::kCPU;
  engine::EngineOptions engine;
  int threads = 1;

  engine::Placement placement() const { return {device, engine}; }
};

/// Sets torch's threads and finds the device; throws Error with what to do.
Runtime apply(const RuntimeOptions& options);

/// Set by SIGINT and SIGTERM after catch_interrupts(); a second signal ends the process at once, unless it
/// comes within `same` seconds: launchers pass on what the terminal has sent already.
const std::atomic<bool>& interrupted();
void catch_interrupts(int same = 0);
/// The same for commands that save what they have done. Besides, a closed terminal (SIGHUP) interrupts them,
/// and a reader of their messages that has gone (SIGPIPE) does not end them: such messages go through say().
void protect_work(int same = 0);

}  // namespace ebclr::cli
