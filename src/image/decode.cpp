#include "image/decode.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "image/decoders.h"
#include "image/formats.h"

namespace ebclr::image {
namespace {

constexpr uint64_t kLargePixels = 16'000'000;

Stored decode_stored(Bytes bytes, const std::string& name, const Header& header, int at_least) {
  switch (header.format) {
    case Format::kJpeg:
      return decode_jpeg(bytes, name, at_least);
    case Format::kPng:
      return decode_png(bytes, name);
    case Format::kBmp:
      return decode_bmp(bytes, name);
    case Format::kPnm:
      return decode_pnm(bytes, name);
    case Format::kWebp:
      return decode_webp(bytes, name);
    case Format::kTiff:
      return decode_tiff(bytes, name);
    case Format::kGif:
      return decode_gif(bytes, name);
    case Format::kAvif:
      return has_avif() || !has_heif() ? decode_avif(bytes, name) : decode_heif(bytes, name);
    case Format::kHeic:
      return decode_heif(bytes, name);
    case Format::kUnknown:
      break;
  }
  bad_image(name, "unknown format");
}

// EXIF's numbers: 2-4 mirror and turn by half, 5-8 also swap the sides.
Pixels upright(Pixels stored, int orientation) {
  if (orientation < 2 || orientation > 8) return stored;
  const bool swap = orientation >= 5;
  const int w = stored.width, h = stored.height, c = stored.channels;
  Pixels out(swap ? h : w, swap ? w : h, c);
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x) {
      int sx = swap ? y : x, sy = swap ? x : y;
      if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) sx = w - 1 - sx;
      if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) sy = h - 1 - sy;
      std::memcpy(out.row(y) + size_t(x) * c, stored.row(sy) + size_t(sx) * c, size_t(c));
    }
  return out;
}

}  // namespace

int exif_orientation(Bytes exif) {
  const auto* p = as_u8(exif);
  size_t n = exif.size();
  if (n >= 6 && std::memcmp(p, "Exif\0\0", 6) == 0) {
    p += 6;
    n -= 6;
  }
  if (n < 8 || (std::memcmp(p, "II", 2) != 0 && std::memcmp(p, "MM", 2) != 0)) return 1;
  const bool little = p[0] == 'I';
  const auto u16 = [&](size_t at) -> unsigned {
    return at + 2 > n ? 0 : little ? p[at] | p[at + 1] << 8 : p[at] << 8 | p[at + 1];
  };
  const auto u32 = [&](size_t at) -> size_t {
    return little ? u16(at) | size_t{u16(at + 2)} << 16 : size_t{u16(at)} << 16 | u16(at + 2);
  };
  const size_t ifd = u32(4);
  if (ifd + 2 > n) return 1;
  const unsigned entries = u16(ifd);
  for (unsigned i = 0; i < entries && ifd + 2 + 12 * size_t{i} + 12 <= n; ++i) {
    const size_t at = ifd + 2 + 12 * size_t{i};
    if (u16(at) != 0x0112) continue;
    const unsigned value = u16(at + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Pixels flatten(const uint8_t* data, int width, int height, int channels) {
  const int out_channels = channels - 1;
  Pixels out(width, height, out_channels);
  const size_t n = size_t(width) * size_t(height);
  uint8_t* to = out.data.data();
  for (size_t i = 0; i < n; ++i) {
    const unsigned alpha = data[out_channels];
    for (int k = 0; k < out_channels; ++k) *to++ = over_white(data[k], alpha);
    data += channels;
  }
  return out;
}

Pixels decode(Bytes bytes, const std::string& name, const DecodeOptions& options) {
  const Header header = inspect(bytes, name);
  // avif and heic do not say their size before they are opened: they wait their turn when the file is large.
  const bool large =
      header.width == 0 ? bytes.size() > 4'000'000 : header.width * header.height > kLargePixels;
  std::unique_lock<std::mutex> lock;
  if (large && options.large) lock = std::unique_lock(*options.large);
  try {
    auto stored = decode_stored(bytes, name, header, options.at_least);
    return upright(std::move(stored.pixels), stored.orientation);
  } catch (const std::bad_alloc&) {
    // Bad luck, not a bad file: on another day it may be read.
    core::run_error("image", one_line(name, "not enough memory to decode it"));
  }
}

}  // namespace ebclr::image
