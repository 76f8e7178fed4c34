#pragma once
// The decoders behind image/decode.h, one per library; not for other rooms.

#include <fmt/format.h>

#include <span>
#include <string>

#include "core/error.h"
#include "image/formats.h"
#include "image/pixels.h"

namespace ebclr::image {

/// What a decoder hands over: pixels as stored, and how the camera was held (EXIF's numbers, 1 is upright).
struct Stored {
  Pixels pixels;
  int orientation = 1;
};

using Bytes = std::span<const std::byte>;

Stored decode_avif(Bytes bytes, const std::string& name);
Stored decode_bmp(Bytes bytes, const std::string& name);
Stored decode_gif(Bytes bytes, const std::string& name);
Stored decode_heif(Bytes bytes, const std::string& name);
Stored decode_jpeg(Bytes bytes, const std::string& name, int at_least);
Stored decode_png(Bytes bytes, const std::string& name);
Stored decode_pnm(Bytes bytes, const std::string& name);
Stored decode_tiff(Bytes bytes, const std::string& name);
Stored decode_webp(Bytes bytes, const std::string& name);
/// Are the optional decoders part of this build?
bool has_avif();
bool has_heif();

/// Orientation of an EXIF block (a small TIFF); 1 when there is none or it makes no sense.
int exif_orientation(Bytes exif);
/// One pixel over white: value * alpha + 255 * (1 - alpha).
inline uint8_t over_white(unsigned value, unsigned alpha) {
  return static_cast<uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}
/// Rows of RGBA or grey with alpha (4 or 2 channels) over white.
Pixels flatten(const uint8_t* data, int width, int height, int channels);

inline const uint8_t* as_u8(Bytes bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}
/// What is wrong in one line, whatever a file's name or a library's message holds.
inline std::string one_line(const std::string& name, std::string_view what) {
  std::string text = fmt::format("{}: {}", name, what);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text;
}
/// Says what is wrong with the file.
[[noreturn]] inline void bad_image(const std::string& name, std::string_view what) {
  core::usage_error("image", one_line(name, what));
}
/// How many pixels a file may have for its size; the best codecs pack some thousands of equal ones into a
/// byte.
inline constexpr uint64_t kFreePixels = 4'000'000, kPixelsPerByte = 10'000;
/// Refuses sizes that would take too much memory, or of more than `most` pixels.
inline void check_size(uint64_t width, uint64_t height, size_t file_bytes, const std::string& name,
                       uint64_t most = kMaxPixels) {
  if (width == 0 || height == 0)
    bad_image(name, fmt::format("the header gives {} x {} pixels; expected at least 1 x 1", width, height));
  if (width > most || height > most || width * height > most ||
      width * height > kFreePixels + kPixelsPerByte * file_bytes)
    bad_image(name,
              fmt::format("the header gives {} x {} pixels for a file of {} bytes; too large to be read",
                          width, height, file_bytes));
}

}  // namespace ebclr::image
