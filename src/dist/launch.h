#pragma once
// Who started this process, and as which of how many: read from the environment that launchers leave.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ebclr::dist {

/// This process among those that train together.
struct Launch {
  std::string launcher = {};  ///< "torchrun", "mpirun", "srun", "pmi" or "environment"
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  ///< among the processes of this host
  std::string master = {};              ///< host of rank 0
  uint16_t port = 0;                    ///< where it is met
  std::string job = {};                 ///< distinguishes jobs and restarts that meet at the same port
  bool agent_store = false;             ///< torchrun's agent keeps the store: rank 0 must not open one
};

/// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;
/// The process's own environment.
Environment process_environment();

/// What the launcher said; nullopt for a process started alone, or as the only one. Throws Error when it said
/// half of it or nonsense.
std::optional<Launch> find_launch(const Environment& environment);

/// How often the launcher has started this job again after a failure (torchrun --max-restarts, a requeued
/// Slurm job); 0 for the first time.
int restart_count(const Environment& environment);

/// Threads for one of the processes of a host where this process may use `mine` of `all` cores: cores that a
/// launcher has bound to it are its own, others are shared by the processes of the host.
int threads_of(const Launch& launch, int mine, int all);

/// First host of a Slurm node list: "node[03-07,9],gpu1" -> "node03".
std::string first_host(const std::string& node_list);

}  // namespace ebclr::dist
