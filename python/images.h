#pragma once
// What Python calls images, as a batch that an encoder reads.

#include <pybind11/pybind11.h>
#include <torch/types.h>

namespace ebclr::python {

/// How an encoder wants its images.
struct Wanted {
  int64_t channels = 3, size = 32;
};

/// Images as float [N, C, H, W] in [-1, 1], or as uint8 [N, C, H, W] that still has to be scaled. Accepted:
/// uint8 [N, H, W, C] (or [H, W, C], or [N, H, W] for grey), float32 [N, C, H, W] in [-1, 1], as NumPy arrays
/// or anything with __dlpack__ (torch tensors), none of them copied; a path or a list of paths.
/// Call with the GIL held.
torch::Tensor to_images(const pybind11::handle& images, const Wanted& wanted);

/// A tensor as a NumPy array that shares its memory.
pybind11::object to_numpy(const torch::Tensor& tensor);

}  // namespace ebclr::python
