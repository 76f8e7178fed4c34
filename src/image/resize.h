#pragma once

#include <cstdint>

#include "image/pixels.h"

namespace ebclr::image {

/// A part of a picture.
struct Region {
  int left = 0, top = 0, width = 0, height = 0;
};

/// The largest square in the middle.
Region centre_square(const Pixels& pixels);

/// The region at another size: each pixel is the mean of the area that it covers where it shrinks, and
/// interpolated linearly where it grows.
Pixels resize(const Pixels& from, const Region& region, int width, int height);
/// The whole picture at another size.
Pixels resize(const Pixels& from, int width, int height);

/// The centre square at size x size as planes: out uint8 [C, size, size], C 1 (luminance) or 3.
void square_planes(const Pixels& from, int size, bool grayscale, uint8_t* out);

}  // namespace ebclr::image
