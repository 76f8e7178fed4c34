#include "images.h"

#include <ATen/DLConvertor.h>
#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <torch/torch.h>

#include <cmath>

#include "calls.h"
#include "core/error.h"
#include "data/folder.h"
#include "image/read_file.h"

namespace ebclr::python {
namespace py = pybind11;
namespace {

// Without a copy; `keep` holds the owner of the memory.
torch::Tensor from_numpy(const py::array& array) {
  const bool bytes = py::isinstance<py::array_t<uint8_t>>(array),
             floats = py::isinstance<py::array_t<float>>(array);
  if (!bytes && !floats)
    core::usage_error("python",
                      fmt::format("images of type {}; give uint8 [N, H, W, C] or float32 [N, C, H, W]",
                                  std::string(py::str(array.dtype()))));
  std::vector<int64_t> sizes, strides;
  for (py::ssize_t i = 0; i < array.ndim(); ++i) {
    sizes.push_back(array.shape(i));
    strides.push_back(array.strides(i) / array.itemsize());
    if (array.strides(i) < 0 || array.strides(i) % array.itemsize())
      core::usage_error("python",
                        "images with reversed axes; copy them first: numpy.ascontiguousarray(images)");
  }
  auto* owner = new py::object(array);
  return torch::from_blob(
      const_cast<void*>(array.data()), sizes, strides,
      [owner](void*) {
        const py::gil_scoped_acquire gil;
        delete owner;
      },
      bytes ? torch::kUInt8 : torch::kFloat32);
}

torch::Tensor from_dlpack(const py::handle& tensor) {
  py::object source = py::reinterpret_borrow<py::object>(tensor);
  if (py::hasattr(source, "detach")) source = source.attr("detach")();
  const py::capsule capsule = source.attr("__dlpack__")();
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (!managed) throw py::error_already_set();
  auto out = at::fromDLPack(managed);
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");  // the tensor frees it now
  return out;
}

// The encoder reads [-1, 1]. Augmented images and chains step over a little; pixels of 0..255 are far away.
constexpr double kFarthest = 16;

void check_range(const torch::Tensor& x) {
  if (x.numel() == 0) return;  // the encoder has something to say about its size
  const double most = x.abs().max().item<double>();
  if (!(most <= kFarthest))
    core::usage_error("python",
                      fmt::format("float32 images with values of {}; the encoder reads [-1, 1] (give "
                                  "pixels of 0..255 as uint8 [N, H, W, C])",
                                  std::isnan(most) ? "NaN" : fmt::format("up to {:.4g}", most)));
}

}  // namespace

int64_t Images::size() const {
  return pixels.defined() ? pixels.size(0) : static_cast<int64_t>(files.size());
}

torch::Tensor Images::batch(int64_t first, int64_t count) const {
  if (pixels.defined()) {
    const auto x = pixels.narrow(0, first, count);
    if (x.scalar_type() == torch::kUInt8) return data::to_unit_range(x).contiguous();
    check_range(x);
    return x.contiguous();
  }
  constexpr int64_t kFilesPerCheck = 16;  // large photos take 50 ms each
  auto out = torch::empty({count, wanted.channels, wanted.size, wanted.size}, torch::kUInt8);
  for (int64_t i = 0; i < count; ++i) {
    if (i % kFilesPerCheck == 0) check_signals();
    const auto& file = files[static_cast<size_t>(first + i)];
    data::decode_image(image::read_regular(file), file.string(), wanted.size, wanted.channels == 1,
                       out[i].data_ptr<uint8_t>());
  }
  return data::to_unit_range(out);
}

Images to_images(const py::handle& images, const Wanted& wanted) {
  torch::Tensor t;
  if (is_path(images)) return {.files = as_paths(images, "an image"), .wanted = wanted};
  if (py::isinstance<py::array>(images)) {
    t = from_numpy(py::reinterpret_borrow<py::array>(images));
  } else if (py::hasattr(images, "__dlpack__")) {
    t = from_dlpack(images);
  } else if (py::isinstance<py::sequence>(images)) {
    for (const auto& item : images)
      if (!is_path(item))
        core::usage_error(
            "python", "a list of images must be a list of paths; stack arrays first: numpy.stack(images)");
    auto files = as_paths(images, "an image");
    if (files.empty()) core::usage_error("python", "no images in an empty list");
    return {.files = std::move(files), .wanted = wanted};
  } else {
    core::usage_error(
        "python", fmt::format("images of type {}; give a NumPy array, a tensor or paths", type_of(images)));
  }
  if (t.scalar_type() == torch::kUInt8) {
    if (t.dim() == 3 && t.size(2) == wanted.channels) t = t.unsqueeze(0);
    if (t.dim() == 3 && wanted.channels == 1) t = t.unsqueeze(3);
    if (t.dim() != 4 || t.size(3) != wanted.channels)
      core::usage_error("python", fmt::format("uint8 images of shape [{}]; the encoder reads [N, H, W, {}]",
                                              fmt::join(t.sizes().vec(), ", "), wanted.channels));
    t = t.permute({0, 3, 1, 2});
  } else if (t.scalar_type() == torch::kFloat32) {
    if (t.dim() != 4 || t.size(1) != wanted.channels)
      core::usage_error(
          "python", fmt::format("float32 images of shape [{}]; the encoder reads [N, {}, H, W] in [-1, 1]",
                                fmt::join(t.sizes().vec(), ", "), wanted.channels));
  } else {
    core::usage_error("python", "images must be uint8 [N, H, W, C] or float32 [N, C, H, W] in [-1, 1]");
  }
  if (t.size(0) == 0) core::usage_error("python", "no images in an empty batch");
  return {.pixels = t, .wanted = wanted};
}

py::object to_numpy(const torch::Tensor& tensor) {
  auto* keep = new torch::Tensor(tensor.to(torch::kCPU).contiguous());
  const py::capsule owner(keep, [](void* p) { delete static_cast<torch::Tensor*>(p); });
  const std::vector<py::ssize_t> shape(keep->sizes().begin(), keep->sizes().end());
  if (keep->scalar_type() == torch::kInt64)
    return py::array_t<int64_t>(shape, keep->data_ptr<int64_t>(), owner);
  if (keep->scalar_type() == torch::kUInt8)
    return py::array_t<uint8_t>(shape, keep->data_ptr<uint8_t>(), owner);
  TORCH_INTERNAL_ASSERT(keep->scalar_type() == torch::kFloat32);
  return py::array_t<float>(shape, keep->data_ptr<float>(), owner);
}

}  // namespace ebclr::python
