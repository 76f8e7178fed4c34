#pragma once

#include <filesystem>
#include <istream>
#include <string>

namespace ebclr::core {

/// Cores that this process may use: the affinity mask, capped by the cgroup's CPU quota (v1 and v2) and by
/// OMP_NUM_THREADS.
int available_cores();

/// What the system calls the processor; "unknown processor" where it does not say.
std::string processor_name();

/// The tightest CPU quota, in cores, of the groups that `groups` names (as /proc/self/cgroup does) and of all
/// above them; 0 when none is set. `root` is where cgroups are mounted.
double cgroup_quota(std::istream& groups, const std::filesystem::path& root);

}  // namespace ebclr::core
