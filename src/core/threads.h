#pragma once

namespace ebclr::core {

/// Cores that this process may use: the affinity mask, capped by the cgroup's CPU quota (v1 and v2).
int available_cores();

}  // namespace ebclr::core
