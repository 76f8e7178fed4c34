#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace ebclr::core {
namespace {
namespace fs = std::filesystem;

// Quota in cores of one cgroup folder, or 0 when it sets none.
double quota_of(const fs::path& folder) {
  std::string quota;
  double period = 0;
  if (std::ifstream v2(folder / "cpu.max"); v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return 0;
    return std::strtod(quota.c_str(), nullptr) / period;
  }
  double us = 0;
  std::ifstream q(folder / "cpu.cfs_quota_us"), p(folder / "cpu.cfs_period_us");
  if (q >> us && p >> period && us > 0 && period > 0) return us / period;
  return 0;
}

}  // namespace

double cgroup_quota(std::istream& groups, const fs::path& root) {
  double tightest = 0;
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b"; in v2 "0::/a/b"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers(1, ',');
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    for (;;) {
      if (const double q = quota_of(fs::path((v2 ? root : root / "cpu").string() + path)); q > 0)
        tightest = tightest > 0 ? std::min(tightest, q) : q;
      const auto slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path = path.substr(0, slash);
    }
  }
  return tightest;
}

int available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  std::ifstream groups("/proc/self/cgroup");
  if (const double quota = cgroup_quota(groups, "/sys/fs/cgroup"); quota > 0)
    cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  // Whoever says how many threads OpenMP may have means us too; of a list the first counts.
  if (const char* word = std::getenv("OMP_NUM_THREADS"))
    if (const long n = std::strtol(word, nullptr, 10); n > 0 && n < cores) cores = static_cast<int>(n);
  return std::max(1, cores);
}

std::string processor_name() {
  std::ifstream cpu("/proc/cpuinfo");
  for (std::string line; std::getline(cpu, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace ebclr::core
