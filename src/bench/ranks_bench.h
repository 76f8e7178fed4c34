#pragma once
// Ranks against threads: the same training by one process with several threads and by as many ranks with one
// thread each, as child processes in turns.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/engine_bench.h"

namespace ebclr::bench {

struct RanksOptions {
  int ranks = 2;           ///< against one process with as many threads
  int64_t batch = 64;      ///< of all ranks together
  int steps = 3;           ///< timed steps of each training, after one that warms up
  int rounds = 3;          ///< trainings of each kind, in turns
  double least_bytes = 0;  ///< that a rank must hand over in a step: gradients and outputs, each once
  std::string master = "127.0.0.1";
  /// Words before the command of a rank, "{}" being its number: how it gets to its host.
  std::string through = {};
  std::filesystem::path scratch;  ///< run folders; removed afterwards
  /// Words of the program that trains so many steps into a folder.
  std::function<std::vector<std::string>(const std::filesystem::path& folder, int threads, int64_t steps)>
      command;
};

/// Seconds per step and what the exchange took of it.
struct RanksBench {
  RanksOptions options;
  Timing threads = {}, ranks = {};
  double exchange_seconds = 0;  ///< median per step, waiting for slower ranks included
  double exchange_bytes = 0;    ///< handed over per step by a rank
  double exchanges = 0;         ///< per step

  /// Speed of the ranks over that of the threads.
  double efficiency() const { return threads.median / ranks.median; }
  double exchange_share() const { return exchange_seconds / ranks.median; }
};

/// Bytes that a rank must hand over in a step of these options: every gradient and every output once.
double least_exchange(const BenchOptions& options);

/// Throws Error with what a child said when it fails.
RanksBench bench_ranks(const RanksOptions& options);

nlohmann::json to_json(const RanksBench& result);

}  // namespace ebclr::bench
