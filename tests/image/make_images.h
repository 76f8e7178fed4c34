#pragma once
// Pictures of known content as files of every format, for tests.

#include <tiffio.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cstdint>
#include <string>

#include "image/encode.h"
#include "image/pixels.h"

namespace ebclr::testing {

inline std::string le(uint64_t v, int bytes) {
  std::string s;
  for (int i = 0; i < bytes; ++i) s += static_cast<char>(i < 8 ? v >> 8 * i : 0);
  return s;
}
inline std::string be(uint64_t v, int bytes) {
  std::string s;
  for (int i = bytes - 1; i >= 0; --i) s += static_cast<char>(v >> 8 * i);
  return s;
}

/// One colour everywhere.
inline image::Pixels plain(int width, int height, uint8_t r, uint8_t g, uint8_t b) {
  image::Pixels p(width, height, 3);
  for (size_t i = 0; i < p.data.size(); i += 3) {
    p.data[i] = r;
    p.data[i + 1] = g;
    p.data[i + 2] = b;
  }
  return p;
}

/// Left half red, right half green.
inline image::Pixels two_colours(int width = 40, int height = 20) {
  auto p = plain(width, height, 255, 0, 0);
  for (int y = 0; y < height; ++y)
    for (int x = width / 2; x < width; ++x) {
      p.row(y)[3 * x] = 0;
      p.row(y)[3 * x + 1] = 255;
    }
  return p;
}

inline std::string as_string(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string bmp_file(const image::Pixels& p) {
  const size_t stride = (p.row_bytes() + 3) / 4 * 4;
  std::string out = "BM" + le(54 + stride * static_cast<size_t>(p.height), 4) + le(0, 4) + le(54, 4) +
                    le(40, 4) + le(static_cast<uint64_t>(p.width), 4) +
                    le(static_cast<uint64_t>(p.height), 4) + le(1, 2) + le(24, 2) + le(0, 24);
  for (int y = p.height - 1; y >= 0; --y) {
    std::string row;
    for (int x = 0; x < p.width; ++x)
      for (int k = 2; k >= 0; --k) row += static_cast<char>(p.row(y)[3 * x + k]);
    row.resize(stride);
    out += row;
  }
  return out;
}

inline std::string ppm_file(const image::Pixels& p) {
  return "P6 " + std::to_string(p.width) + " " + std::to_string(p.height) + " 255\n" +
         std::string(p.data.begin(), p.data.end());
}

inline std::string webp_file(const image::Pixels& p) {
  uint8_t* out = nullptr;
  const size_t n = WebPEncodeLosslessRGB(p.data.data(), p.width, p.height, p.width * 3, &out);
  std::string s(reinterpret_cast<char*>(out), n);
  WebPFree(out);
  return s;
}

/// A TIFF in memory, made by libtiff through a temporary file; `mode` "w" or "w8" (BigTIFF).
struct TiffKind {
  int bits = 8, channels = 3, photometric = PHOTOMETRIC_RGB, format = SAMPLEFORMAT_UINT,
      compression = COMPRESSION_LZW;
  int orientation = 1;
  const char* mode = "w";
};
inline std::string tiff_file(int width, int height, const TiffKind& kind, const std::string& rows) {
  char name[] = "/tmp/ebclr_tiff_XXXXXX";
  const int fd = mkstemp(name);
  TIFF* t = TIFFFdOpen(fd, name, kind.mode);
  TIFFSetField(t, TIFFTAG_IMAGEWIDTH, width);
  TIFFSetField(t, TIFFTAG_IMAGELENGTH, height);
  TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, kind.bits);
  TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, kind.channels);
  TIFFSetField(t, TIFFTAG_PHOTOMETRIC, kind.photometric);
  TIFFSetField(t, TIFFTAG_SAMPLEFORMAT, kind.format);
  TIFFSetField(t, TIFFTAG_COMPRESSION, kind.compression);
  TIFFSetField(t, TIFFTAG_ORIENTATION, kind.orientation);
  TIFFSetField(t, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  const size_t stride = rows.size() / static_cast<size_t>(height);
  for (int y = 0; y < height; ++y) {
    std::string row = rows.substr(stride * static_cast<size_t>(y), stride);
    TIFFWriteScanline(t, row.data(), static_cast<uint32_t>(y));
  }
  TIFFClose(t);
  FILE* f = std::fopen(name, "rb");
  std::string out;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, f)) > 0;) out.append(buffer, n);
  std::fclose(f);
  std::remove(name);
  return out;
}

/// The picture as a file of that ending.
inline std::string encode(const image::Pixels& p, const std::string& extension) {
  if (extension == ".png") return as_string(image::encode_png(p));
  if (extension == ".jpg") return as_string(image::encode_jpeg(p, 95));
  if (extension == ".bmp") return bmp_file(p);
  if (extension == ".ppm") return ppm_file(p);
  if (extension == ".webp") return webp_file(p);
  return tiff_file(p.width, p.height, {}, std::string(p.data.begin(), p.data.end()));
}

}  // namespace ebclr::testing
