#pragma once
// What a pass costs in arithmetic, and what the machine can do: the yardsticks of the benchmarks.

#include "cpu/kernels.h"
#include "cpu/network.h"

namespace ebclr::cpu {

/// Floating-point operations of one image's forward pass; a data or a weight gradient costs the same again.
struct PassCost {
  double direct = 0;  // all products of the convolutions as defined
  double fast = 0;    // products that Winograd and polyphase leave, tiles at borders counted whole
};

PassCost pass_cost(const NetworkShape& shape, int height, int width);

/// Fused multiply-adds from registers on `threads` threads: the machine's peak in FLOP/s, best of several
/// runs.
double fma_peak(const Kernels& kernels, int threads);

}  // namespace ebclr::cpu
