#pragma once
// Results of many rows that the processes of a group compute together: features, energies.

#include <torch/types.h>

#include <cstdint>
#include <functional>

#include "dist/group.h"

namespace ebclr::dist {

struct RowJob {
  int64_t total = 0;    ///< rows
  int64_t batch = 256;  ///< computed at once, whatever the number of ranks: each batch is one rank's
  int64_t width = 1;    ///< values of a row
  /// Rows first .. first + count -> float [count, width], on any device.
  std::function<torch::Tensor(int64_t first, int64_t count)> compute;
  std::function<void(double)> progress = {};  ///< called with the share that is done
};

/// All rows float [total, width] on rank 0's host, the same bytes as of a process alone; [0, width] on the
/// other ranks, which never hold more than a round of batches.
torch::Tensor compute_rows(Group& group, const RowJob& job);

}  // namespace ebclr::dist
