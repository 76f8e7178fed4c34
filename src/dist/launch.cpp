#include "dist/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/error.h"
#include "core/rng.h"

namespace ebclr::dist {
namespace {

// One launcher's variables. The first whose `rank` and `world` are both set counts.
struct Dialect {
  const char *launcher, *rank, *world, *local_rank, *local_world, *job;
};
constexpr Dialect kDialects[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    // Not SLURM_NTASKS: a batch script has that too, though it is one process.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_JOB_ID"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_ID"},
};

int number(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < low || value > high)
    core::usage_error("dist",
                      fmt::format("{} is '{}'; expected a number from {} to {}", name, text, low, high));
  return value;
}

std::optional<int> number(const Environment& environment, const std::string& name, int low, int high) {
  if (name.empty()) return std::nullopt;
  const auto text = environment(name);
  if (!text) return std::nullopt;
  return number(name, *text, low, high);
}

// Processes of a job that names no port agree on one by the job's name.
uint16_t port_of(const std::string& job) {
  uint64_t h = 0;
  for (const char c : job) h = core::mix64(h + static_cast<unsigned char>(c) + 1);
  return static_cast<uint16_t>(20000 + h % 12000);
}

// Slurm writes "2(x3),1": tasks of each host, of which this one is number SLURM_NODEID.
std::optional<int> slurm_local_world(const Environment& environment) {
  const auto list = environment("SLURM_STEP_TASKS_PER_NODE");
  const auto node = number(environment, "SLURM_NODEID", 0, 1 << 20);
  if (!list || !node) return std::nullopt;
  int host = 0;
  for (size_t at = 0; at < list->size();) {
    const size_t comma = std::min(list->find(',', at), list->size());
    const std::string part = list->substr(at, comma - at);
    const size_t times = part.find("(x");
    const int tasks = number("SLURM_STEP_TASKS_PER_NODE", part.substr(0, times), 1, 1 << 20);
    const int hosts = times == std::string::npos
                          ? 1
                          : number("SLURM_STEP_TASKS_PER_NODE",
                                   part.substr(times + 2, part.size() - times - 3), 1, 1 << 20);
    host += hosts;
    if (*node < host) return tasks;
    at = comma + 1;
  }
  return std::nullopt;
}

/// Nobody said how many ranks share this host: all of them, where rank 0 is met by an address that no other
/// host has; else one, as when each host was started by hand.
bool meets_on_this_host(const std::optional<std::string>& master) {
  return !master || master->empty() || *master == "localhost" || *master == "::1" ||
         master->starts_with("127.");
}

void find_master(Launch& launch, const Environment& environment) {
  const auto master = environment("MASTER_ADDR");
  const auto port = number(environment, "MASTER_PORT", 1, 65535);
  launch.port = port ? static_cast<uint16_t>(*port) : port_of(launch.job);
  if (master && !master->empty()) {
    launch.master = *master;
  } else if (launch.launcher == "srun") {
    auto nodes = environment("SLURM_STEP_NODELIST");
    if (!nodes) nodes = environment("SLURM_NODELIST");
    if (!nodes) core::usage_error("dist", "Slurm named no nodes; set MASTER_ADDR to the host of rank 0");
    launch.master = first_host(*nodes);
  } else if (launch.local_world == launch.world) {
    launch.master = "127.0.0.1";
  } else {
    core::usage_error("dist", fmt::format("{} ranks on several hosts: set MASTER_ADDR to the host of rank 0 "
                                          "(with mpirun: -x MASTER_ADDR=host)",
                                          launch.world));
  }
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::string first_host(const std::string& node_list) {
  const size_t open = node_list.find('['), comma = node_list.find(',');
  if (open == std::string::npos || comma < open) return node_list.substr(0, comma);
  const size_t end = node_list.find_first_of("-,]", open + 1);
  const size_t close = node_list.find(']', open);
  if (end == std::string::npos || close == std::string::npos)
    core::usage_error("dist", fmt::format("cannot read the node list '{}'; set MASTER_ADDR", node_list));
  const size_t next = node_list.find(',', close);
  const std::string tail =
      node_list.substr(close + 1, next == std::string::npos ? std::string::npos : next - close - 1);
  return node_list.substr(0, open) + node_list.substr(open + 1, end - open - 1) + tail;
}

int restart_count(const Environment& environment) {
  int count = 0;
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"})
    count = std::max(count, number(environment, name, 0, 1 << 20).value_or(0));
  return count;
}

int threads_of(const Launch& launch, int mine, int all) {
  const bool binds = launch.launcher != "torchrun" && launch.launcher != "environment";
  return binds && mine < all ? mine : std::max(1, mine / launch.local_world);
}

std::optional<Launch> find_launch(const Environment& environment) {
  for (const Dialect& d : kDialects) {
    const auto rank_text = environment(d.rank), world_text = environment(d.world);
    const bool plain = std::string_view(d.launcher) == "torchrun";
    // RANK alone means nothing to us: too common a name.
    if (!rank_text || !world_text) {
      if (plain && world_text && environment("MASTER_ADDR"))
        core::usage_error("dist", "WORLD_SIZE is set and RANK is not; set both, or neither");
      continue;
    }
    Launch launch;
    launch.launcher = d.launcher;
    if (plain && !environment("TORCHELASTIC_RUN_ID")) launch.launcher = "environment";
    launch.world = number(d.world, *world_text, 1, 1 << 16);
    if (launch.world == 1) return std::nullopt;
    launch.rank = number(d.rank, *rank_text, 0, launch.world - 1);
    launch.job = environment(d.job).value_or("");
    const bool local = launch.launcher == "pmi" ||
                       (launch.launcher == "environment" && meets_on_this_host(environment("MASTER_ADDR")));
    auto local_world = number(environment, d.local_world, 1, launch.world);
    if (launch.launcher == "srun") local_world = slurm_local_world(environment);
    launch.local_world = local_world.value_or(local ? launch.world : 1);
    launch.local_rank =
        number(environment, d.local_rank, 0, launch.world - 1).value_or(launch.rank % launch.local_world);
    launch.agent_store = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
    find_master(launch, environment);
    // A restarted job must not read what its last attempt left in the agent's store.
    launch.job += "/" + environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
    return launch;
  }
  return std::nullopt;
}

}  // namespace ebclr::dist
