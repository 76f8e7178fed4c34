#include "dist/rows.h"

#include <torch/torch.h>

#include <algorithm>

namespace ebclr::dist {

torch::Tensor compute_rows(Group& group, const RowJob& job) {
  const int64_t round = job.batch * group.world();
  const auto out = torch::empty({group.rank() == 0 ? job.total : 0, job.width});
  for (int64_t first = 0; first < job.total; first += round) {
    const int64_t begin = first + group.rank() * job.batch;
    const int64_t count = std::clamp<int64_t>(job.total - begin, 0, job.batch);
    const int64_t all = std::min(round, job.total - first);
    if (group.alone()) {
      out.narrow(0, first, all).copy_(job.compute(first, all));
    } else {
      // The last round may be short: every rank hands over a whole batch all the same.
      auto mine = torch::zeros({job.batch, job.width});
      if (count > 0) mine.narrow(0, 0, count).copy_(job.compute(begin, count));
      const auto rows = group.gather_rows(mine, round);
      if (group.rank() == 0) out.narrow(0, first, all).copy_(rows.narrow(0, 0, all));
    }
    if (job.progress) job.progress(static_cast<double>(first + all) / static_cast<double>(job.total));
  }
  return out;
}

}  // namespace ebclr::dist
