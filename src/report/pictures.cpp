#include "report/pictures.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "image/decode.h"
#include "image/encode.h"
#include "image/resize.h"

namespace ebclr::report {

std::vector<std::byte> shrink(const std::vector<std::byte>& file, int width, const std::string& name) {
  image::Pixels picture;
  try {
    picture = image::decode(file, name);
  } catch (const core::Error&) {
    core::usage_error("report", fmt::format("{}: not a picture that can be read", name));
  }
  if (picture.width > width)
    picture = image::resize(picture, width,
                            std::max(1, static_cast<int>(int64_t{picture.height} * width / picture.width)));
  return image::encode_jpeg(picture, 88);
}

std::vector<std::byte> sprite(const torch::Tensor& images, int columns, int side) {
  if (!images.defined() || images.dim() != 4 || images.size(0) == 0 ||
      images.scalar_type() != torch::kUInt8 || (images.size(1) != 1 && images.size(1) != 3) || columns < 1 ||
      side < 1)
    core::usage_error("report", "a sprite needs images uint8 [N, C, H, W] with C 1 or 3");
  const int n = static_cast<int>(images.size(0)), rows = (n + columns - 1) / columns;
  image::Pixels sheet(columns * side, rows * side, 3);
  std::fill(sheet.data.begin(), sheet.data.end(), uint8_t{255});
  image::Pixels one(static_cast<int>(images.size(3)), static_cast<int>(images.size(2)), 3);
  for (int i = 0; i < n; ++i) {
    const auto pixels =
        images[i].to(torch::kCPU).expand({3, -1, -1}).permute({1, 2, 0}).contiguous();  // [H, W, 3]
    std::copy_n(pixels.data_ptr<uint8_t>(), one.data.size(), one.data.begin());
    const auto small = image::resize(one, side, side);
    for (int y = 0; y < side; ++y)
      std::copy_n(small.row(y), small.row_bytes(),
                  sheet.row(i / columns * side + y) + size_t{3} * static_cast<size_t>(i % columns * side));
  }
  return image::encode_jpeg(sheet, 85);
}

}  // namespace ebclr::report
