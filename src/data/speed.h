#pragma once
// How fast views are made and pictures decoded, for `ebclr bench augment` and `bench decode`.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

/// Pictures decoded and resized per second of processor time, on one thread, by one way of doing it.
struct DecodeSpeed {
  std::string name;
  double per_second = 0;
};

/// Up to `limit` pictures of a folder, from bytes in memory to size x size and to the larger copy that views
/// are cropped from: by us with JPEGs at reduced scale and at full scale, and by what `script`
/// (tools/bench_decode.py) finds in Python. `images`: how many there were.
std::vector<DecodeSpeed> bench_decode(const std::filesystem::path& folder, int size, int64_t limit,
                                      const std::filesystem::path& script, int64_t& images);

}  // namespace ebclr::data
