#pragma once
// What Python calls images, as batches that an encoder reads.

#include <pybind11/pybind11.h>
#include <torch/types.h>

#include <filesystem>
#include <vector>

namespace ebclr::python {

/// How an encoder wants its images.
struct Wanted {
  int64_t channels = 3, size = 32;
};

/// Images in memory where Python has them, or files that are read when their batch is due. Make and destroy
/// it with the GIL held.
struct Images {
  torch::Tensor pixels = {};                      ///< uint8 or float [N, C, H, W]; undefined for files
  std::vector<std::filesystem::path> files = {};  ///< else empty
  Wanted wanted = {};

  int64_t size() const;
  /// Rows as float [count, C, H, W] in [-1, 1]. Ctrl-C is heard between files. Call without the GIL.
  torch::Tensor batch(int64_t first, int64_t count) const;
};

/// Accepted: uint8 [N, H, W, C] (or [H, W, C], or [N, H, W] for grey), float32 [N, C, H, W] in [-1, 1], as
/// NumPy arrays or anything with __dlpack__ (torch tensors), none of them copied; a path or a list of paths.
/// Call with the GIL held.
Images to_images(const pybind11::handle& images, const Wanted& wanted);

/// A tensor as a NumPy array that shares its memory.
pybind11::object to_numpy(const torch::Tensor& tensor);

}  // namespace ebclr::python
