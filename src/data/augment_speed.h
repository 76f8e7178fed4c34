#pragma once
// How fast views are made, for `ebclr bench augment`.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/views.h"

namespace ebclr::data {

/// Views per second of one kind of image.
struct AugmentSpeed {
  double per_core = 0;  ///< one thread, no queue, per second of processor time
  double pool = 0;      ///< through a Loader with `threads`, per second of the clock
  int threads = 1;
};

/// Measures on procedural images of [channels, size, size] for about `seconds` each way, after a check that
/// the pool gives what one thread gives.
AugmentSpeed bench_augment(int64_t channels, int64_t size, const ViewOptions& views, int threads,
                           double seconds);

/// torchvision's views per second of processor time, one image at a time on one thread.
struct TorchvisionSpeed {
  std::string version;
  double colour32 = 0, gray28 = 0;
};

/// Runs `script` (tools/bench_torchvision.py) with Python; nothing where Python or its torchvision is absent.
std::optional<TorchvisionSpeed> bench_torchvision(const std::filesystem::path& script, double seconds);

}  // namespace ebclr::data
