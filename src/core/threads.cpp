#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

namespace ebclr::core {
namespace {

// Quota in cores of one cgroup folder, or 0 when it sets none.
double cgroup_quota(const std::string& folder) {
  std::string quota;
  double period = 0;
  if (std::ifstream v2(folder + "/cpu.max"); v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return 0;
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  double us = 0;
  std::ifstream q(folder + "/cpu.cfs_quota_us"), p(folder + "/cpu.cfs_period_us");
  if (q >> us && p >> period && us > 0 && period > 0) return us / period;
  return 0;
}

}  // namespace

int available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  // The process's own group and every group above it may set a quota; the tightest counts.
  std::ifstream self("/proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    const auto second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    const std::string controllers = line.substr(line.find(':') + 1, second - line.find(':') - 1);
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    if (!controllers.empty() && controllers.find("cpu") == std::string::npos) continue;
    for (;;) {
      if (const double quota = cgroup_quota(root + path); quota > 0)
        cores = std::min(cores, static_cast<int>(std::ceil(quota)));
      const auto slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path = path.substr(0, slash);
    }
  }
  return std::max(1, cores);
}

}  // namespace ebclr::core
