#include "cpu/cost.h"

#include <algorithm>
#include <chrono>

namespace ebclr::cpu {

PassCost pass_cost(const NetworkShape& shape, int height, int width) {
  const auto tiles = [](int h, int w) { return static_cast<double>((h + 3) / 4) * ((w + 3) / 4); };
  PassCost cost;
  const StemShape& window = shape.stem;
  const double stem = 2.0 * window.kernel * window.kernel * shape.channels * shape.width *
                      window.out(height) * window.out(width);
  height = window.pooled(height);
  width = window.pooled(width);
  cost.direct += stem;
  cost.fast += stem;
  double in = shape.width;
  for (int stage = 0; stage < 4; ++stage) {
    const double out = shape.width << stage;
    for (int block = 0; block < shape.blocks[stage]; ++block) {
      const bool down = stage > 0 && block == 0;
      if (down) {
        height = (height + 1) / 2;
        width = (width + 1) / 2;
      }
      const double pixels = static_cast<double>(height) * width;
      cost.direct += 2 * pixels * (9 * in * out + (down ? in * out : 0) + 9 * out * out);
      cost.fast += 2 * tiles(height, width) * ((down ? 81 + 16 : 36) * in * out + 36 * out * out);
      in = out;
    }
  }
  return cost;
}

double fma_peak(const Kernels& kernels, int threads) {
  constexpr long kSteps = 1 << 20;
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    const auto start = std::chrono::steady_clock::now();
    // A team that shrinks would be counted as whole, and the best is kept.
    run_team(
        threads, [&](const Team&) { kernels.fma_chain(kSteps); }, TeamSize::kFixed);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, threads * kernels.fma_chain(0) * kSteps / seconds.count());
  }
  return best;
}

}  // namespace ebclr::cpu
