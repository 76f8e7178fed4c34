#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebclr::image {

/// A decoded picture: 8 bits, grey (1 channel) or RGB (3), rows from top to bottom, channels interleaved.
struct Pixels {
  int width = 0, height = 0, channels = 3;
  std::vector<uint8_t> data = {};  ///< height * width * channels

  Pixels() = default;
  Pixels(int w, int h, int c) : width(w), height(h), channels(c), data(size_t(w) * size_t(h) * size_t(c)) {}
  size_t row_bytes() const { return size_t(width) * size_t(channels); }
  uint8_t* row(int y) { return data.data() + size_t(y) * row_bytes(); }
  const uint8_t* row(int y) const { return data.data() + size_t(y) * row_bytes(); }
};

}  // namespace ebclr::image
