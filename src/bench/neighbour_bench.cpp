// The engine beside a busy neighbour: what is left of its speed when another program wants one of the cores.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "bench/engine_bench.h"
#include "core/error.h"

namespace ebclr::bench {
namespace {

/// A process that does nothing but use up a core, while it lives.
class BusyLoop {
 public:
  BusyLoop() : child_(fork()) {
    if (child_ < 0) core::run_error("bench", "cannot start a process for the busy loop");
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // it must not outlive us, however we end
      for (;;) asm volatile("");
    }
  }
  ~BusyLoop() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  BusyLoop(const BusyLoop&) = delete;
  BusyLoop& operator=(const BusyLoop&) = delete;

 private:
  pid_t child_;
};

}  // namespace

std::vector<NeighbourBench> bench_neighbour(const BenchOptions& o) {
  std::vector<NeighbourBench> results;
  const std::vector<Rival> rivals = step_rivals(o);
  for (const Rival& rival : rivals) {
    NeighbourBench b{.what = rival.name, .options = o};
    b.alone = interleave({rival}, o.warmup, o.repeats)[0];
    const BusyLoop loop;
    b.beside = interleave({rival}, 1, o.repeats)[0];
    results.push_back(b);
  }
  return results;
}

nlohmann::json to_json(const std::vector<NeighbourBench>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const NeighbourBench& b : results) {
    list.push_back({{"bench", "neighbour"},
                    {"what", b.what},
                    {"batch", b.options.batch},
                    {"width", b.options.width},
                    {"alone_ms_median", b.alone.median * 1e3},
                    {"beside_ms_median", b.beside.median * 1e3},
                    {"speed_kept", b.speed_kept()}});
  }
  return list;
}

}  // namespace ebclr::bench
