#include <algorithm>
#include <array>

#include "image/decoders.h"

namespace ebclr::image {
namespace {

struct Bitmap {
  Bytes file;
  const std::string& name;
  int width = 0, height = 0;
  bool top_down = false;
  unsigned bits = 24, compression = 0;
  size_t pixels_at = 0;
  std::vector<std::array<uint8_t, 3>> palette = {};
  std::array<uint32_t, 4> masks = {};  // red, green, blue, alpha

  uint32_t u8(size_t at) const {
    if (at >= file.size()) bad_image(name, fmt::format("offset {}: the bitmap ends early", file.size()));
    return static_cast<uint8_t>(file[at]);
  }
  uint32_t u16(size_t at) const { return u8(at) | u8(at + 1) << 8; }
  uint32_t u32(size_t at) const { return u16(at) | u16(at + 2) << 16; }
};

// The value under a mask, scaled to 8 bits.
uint8_t masked(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = __builtin_ctz(mask);
  const uint64_t top = mask >> shift, v = (pixel & mask) >> shift;
  return static_cast<uint8_t>((v * 255 + top / 2) / top);
}

Bitmap read_header(Bytes bytes, const std::string& name) {
  Bitmap b{.file = bytes, .name = name};
  const uint32_t header = b.u32(14);
  b.pixels_at = b.u32(10);
  const bool old = header == 12;
  if (!old && header < 40) bad_image(name, fmt::format("a bitmap header of {} bytes", header));
  const auto w = old ? static_cast<int64_t>(b.u16(18)) : static_cast<int32_t>(b.u32(18));
  auto h = old ? static_cast<int64_t>(b.u16(20)) : static_cast<int32_t>(b.u32(22));
  b.top_down = h < 0;
  h = std::abs(h);
  if (w < 1 || h < 1) bad_image(name, fmt::format("a bitmap of {} x {} pixels", w, h));
  check_size(static_cast<uint64_t>(w), static_cast<uint64_t>(h), bytes.size(), name);
  b.width = static_cast<int>(w);
  b.height = static_cast<int>(h);
  b.bits = b.u16(old ? 24 : 28);
  b.compression = old ? 0 : b.u32(30);
  size_t at = 14 + header;
  const uint32_t declared = old ? 0 : b.u32(46);
  if (b.compression == 3 || b.compression == 6) {
    for (size_t i = 0; i < (header >= 56 || b.compression == 6 ? 4u : 3u); ++i)
      b.masks[i] = b.u32(54 + 4 * i);
    if (header == 40) at += b.compression == 6 ? 16 : 12;
  } else if (b.bits == 16) {
    b.masks = {0x7C00, 0x03E0, 0x001F, 0};
  } else if (b.bits == 32) {
    b.masks = {0xFF0000, 0xFF00, 0xFF, header >= 56 ? b.u32(66) : 0};
  }
  if (b.bits <= 8) {
    const size_t most = size_t{1} << b.bits, colours = declared > 0 ? std::min<size_t>(declared, most) : most;
    for (size_t i = 0; i < colours; ++i, at += old ? 3 : 4)
      b.palette.push_back({static_cast<uint8_t>(b.u8(at + 2)), static_cast<uint8_t>(b.u8(at + 1)),
                           static_cast<uint8_t>(b.u8(at))});
  }
  const bool plain = b.compression == 0 && (b.bits == 1 || b.bits == 2 || b.bits == 4 || b.bits == 8 ||
                                            b.bits == 16 || b.bits == 24 || b.bits == 32);
  const bool run_length = (b.compression == 1 && b.bits == 8) || (b.compression == 2 && b.bits == 4);
  const bool fields = (b.compression == 3 || b.compression == 6) && (b.bits == 16 || b.bits == 32);
  if (!plain && !run_length && !fields)
    bad_image(name,
              fmt::format("a bitmap of {} bits with compression {}; save it as png", b.bits, b.compression));
  return b;
}

// Run-length coded indices; places that are skipped stay at colour 0.
std::vector<uint8_t> unpack_runs(const Bitmap& b) {
  std::vector<uint8_t> out(size_t(b.width) * size_t(b.height));
  int x = 0, y = 0;
  const auto put = [&](unsigned index) {
    if (x < b.width && y < b.height)
      out[size_t(y) * size_t(b.width) + size_t(x)] = static_cast<uint8_t>(index);
    ++x;
  };
  const bool nibbles = b.bits == 4;
  for (size_t at = b.pixels_at; y < b.height;) {
    const unsigned count = b.u8(at), value = b.u8(at + 1);
    at += 2;
    if (count > 0) {
      for (unsigned i = 0; i < count; ++i) put(nibbles ? (i % 2 ? value & 15 : value >> 4) : value);
    } else if (value == 0) {
      x = 0;
      ++y;
    } else if (value == 1) {
      break;
    } else if (value == 2) {
      x += static_cast<int>(b.u8(at));
      y += static_cast<int>(b.u8(at + 1));
      at += 2;
    } else {
      for (unsigned i = 0; i < value; ++i) {
        const unsigned byte = b.u8(at + (nibbles ? i / 2 : i));
        put(nibbles ? (i % 2 ? byte & 15 : byte >> 4) : byte);
      }
      at += ((nibbles ? (value + 1) / 2 : value) + 1) / 2 * 2;
    }
  }
  return out;
}

}  // namespace

Stored decode_bmp(Bytes bytes, const std::string& name) {
  const Bitmap b = read_header(bytes, name);
  Stored out;
  out.pixels = Pixels(b.width, b.height, 3);
  const auto colour = [&](unsigned index, uint8_t* to) {
    if (index < b.palette.size()) std::copy(b.palette[index].begin(), b.palette[index].end(), to);
  };
  const bool run_length = b.compression == 1 || b.compression == 2;
  const auto indices = run_length ? unpack_runs(b) : std::vector<uint8_t>{};
  const size_t stride = (size_t(b.width) * b.bits + 31) / 32 * 4;
  if (!run_length && b.pixels_at + stride * size_t(b.height) > bytes.size())
    bad_image(name, fmt::format("{} bytes of pixels expected, the file holds {}", stride * size_t(b.height),
                                bytes.size() - std::min(bytes.size(), b.pixels_at)));
  for (int y = 0; y < b.height; ++y) {
    uint8_t* to = out.pixels.row(b.top_down ? y : b.height - 1 - y);
    const uint8_t* row = run_length ? nullptr : as_u8(bytes) + b.pixels_at + size_t(y) * stride;
    for (int x = 0; x < b.width; ++x, to += 3) {
      const auto i = static_cast<size_t>(x);
      if (run_length) {
        colour(indices[size_t(y) * size_t(b.width) + i], to);
      } else if (b.bits <= 8) {
        const size_t bit = i * b.bits;
        colour(row[bit / 8] >> (8 - b.bits - bit % 8) & ((1u << b.bits) - 1), to);
      } else if (b.bits == 24) {
        to[0] = row[3 * i + 2];
        to[1] = row[3 * i + 1];
        to[2] = row[3 * i];
      } else {
        const uint32_t pixel = b.bits == 16 ? row[2 * i] | row[2 * i + 1] << 8
                                            : row[4 * i] | row[4 * i + 1] << 8 | row[4 * i + 2] << 16 |
                                                  uint32_t{row[4 * i + 3]} << 24;
        const unsigned alpha = b.masks[3] ? masked(pixel, b.masks[3]) : 255;
        for (size_t k = 0; k < 3; ++k) to[k] = over_white(masked(pixel, b.masks[k]), alpha);
      }
    }
  }
  return out;
}

}  // namespace ebclr::image
