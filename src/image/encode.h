#pragma once

#include <cstddef>
#include <vector>

#include "image/pixels.h"

namespace ebclr::image {

/// The picture as a PNG file in memory.
std::vector<std::byte> encode_png(const Pixels& pixels);
/// The picture as a JPEG file in memory; quality 1 to 100.
std::vector<std::byte> encode_jpeg(const Pixels& pixels, int quality);

}  // namespace ebclr::image
