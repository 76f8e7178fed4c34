#pragma once
// How fast views are made, for `ebclr bench augment`.

#include <cstdint>

#include "data/views.h"

namespace ebclr::data {

/// Views per second of one kind of image.
struct AugmentSpeed {
  double per_core = 0;  ///< one thread, no queue
  double pool = 0;      ///< through a Loader with `threads`
  int threads = 1;
};

/// Measures on procedural images of [channels, size, size] for about `seconds` each way, after a check that
/// the pool gives what one thread gives.
AugmentSpeed bench_augment(int64_t channels, int64_t size, const ViewOptions& views, int threads,
                           double seconds);

}  // namespace ebclr::data
