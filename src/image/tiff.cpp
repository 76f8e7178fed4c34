#include <tiffio.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "image/decoders.h"

namespace ebclr::image {
namespace {

struct Source {
  Bytes bytes;
  uint64_t at = 0;
  std::string problem = {};
};

Source& source_of(thandle_t handle) {
  return *static_cast<Source*>(handle);
}
tmsize_t on_read(thandle_t handle, void* to, tmsize_t n) {
  auto& s = source_of(handle);
  if (s.at >= s.bytes.size() || n <= 0) return 0;
  const auto take = std::min<uint64_t>(static_cast<uint64_t>(n), s.bytes.size() - s.at);
  std::memcpy(to, s.bytes.data() + s.at, take);
  s.at += take;
  return static_cast<tmsize_t>(take);
}
tmsize_t on_write(thandle_t, void*, tmsize_t) {
  return 0;
}
toff_t on_seek(thandle_t handle, toff_t to, int whence) {
  auto& s = source_of(handle);
  s.at = whence == SEEK_SET ? to : whence == SEEK_CUR ? s.at + to : s.bytes.size() + to;
  return s.at;
}
int on_close(thandle_t) {
  return 0;
}
toff_t on_size(thandle_t handle) {
  return source_of(handle).bytes.size();
}
int on_message(TIFF*, void* user, const char*, const char* format, va_list arguments) {
  auto& problem = static_cast<Source*>(user)->problem;
  if (problem.empty()) {
    char text[160];
    std::vsnprintf(text, sizeof text, format, arguments);
    problem = text;
  }
  return 1;  // said; the library's own handler, which prints, is not called
}

using Tiff = std::unique_ptr<TIFF, void (*)(TIFF*)>;

Tiff open(Source& source) {
  const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                             TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_message, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(
      options.get(), [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), 1'000'000'000);
  return {TIFFClientOpenExt(
              "image", "rm", &source, on_read, on_write, on_seek, on_close, on_size,
              [](thandle_t, void**, toff_t*) { return 0; }, [](thandle_t, void*, toff_t) {}, options.get()),
          TIFFClose};
}

// 32 or 64 bits per sample, float or whole numbers, which libtiff's own RGBA conversion does not know.
struct Samples {
  uint16_t bits = 8, format = SAMPLEFORMAT_UINT, channels = 1;
};

double sample(const uint8_t* p, const Samples& s) {
  if (s.format == SAMPLEFORMAT_IEEEFP) {
    float f = 0;
    double d = 0;
    if (s.bits == 64) std::memcpy(&d, p, 8);
    if (s.bits == 32) std::memcpy(&f, p, 4);
    return s.bits == 64 ? d : f;
  }
  if (s.format == SAMPLEFORMAT_INT) {
    int32_t v = 0;
    std::memcpy(&v, p, 4);
    return v;
  }
  uint32_t v = 0;
  std::memcpy(&v, p, 4);
  return v;
}

Pixels decode_deep(TIFF* tiff, const Samples& s, uint32_t width, uint32_t height, const Source& source,
                   const std::string& name) {
  if (TIFFIsTiled(tiff)) bad_image(name, "a tiled TIFF of 32-bit samples; save it in strips");
  uint16_t planar = PLANARCONFIG_CONTIG;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &planar);
  if (planar != PLANARCONFIG_CONTIG && s.channels > 1)
    bad_image(name, "a TIFF of 32-bit samples in separate planes; save it interleaved");
  const int used = s.channels >= 3 ? 3 : 1;
  const size_t bytes_each = s.bits / 8;
  std::vector<uint8_t> line(static_cast<size_t>(std::max<tmsize_t>(TIFFScanlineSize(tiff), 0)));
  if (line.size() < size_t{width} * s.channels * bytes_each) bad_image(name, "not a readable tiff");
  std::vector<float> values(size_t{width} * height * static_cast<size_t>(used));
  float low = INFINITY, high = -INFINITY;
  for (uint32_t y = 0; y < height; ++y) {
    if (TIFFReadScanline(tiff, line.data(), y) < 0)
      bad_image(name, fmt::format("not a readable tiff ({})", source.problem));
    for (uint32_t x = 0; x < width; ++x)
      for (int k = 0; k < used; ++k) {
        const double v =
            sample(line.data() + (size_t{x} * s.channels + static_cast<size_t>(k)) * bytes_each, s);
        if (!std::isfinite(v)) bad_image(name, "holds NaN or infinite pixels");
        if (std::abs(v) > std::numeric_limits<float>::max()) bad_image(name, "holds pixels beyond 3.4e38");
        const auto f = static_cast<float>(v);
        values[(size_t{y} * width + x) * static_cast<size_t>(used) + static_cast<size_t>(k)] = f;
        low = std::min(low, f);
        high = std::max(high, f);
      }
  }
  // Float pictures are usually in [0, 1]; others, and whole numbers, are shown from 0 (or the least) to the
  // most.
  const float from = std::min(low, 0.0f);
  const float to = s.format == SAMPLEFORMAT_IEEEFP ? std::max(high, 1.0f) : std::max(high, from + 1);
  if (!std::isfinite(to - from)) bad_image(name, "its pixels lie further apart than 3.4e38");
  // (Adding 1 changes no whole number below -2^24.)
  const float span = to > from ? to - from : 1;
  Pixels out(static_cast<int>(width), static_cast<int>(height), used);
  for (size_t i = 0; i < values.size(); ++i)
    out.data[i] = static_cast<uint8_t>((values[i] - from) / span * 255 + 0.5f);
  return out;
}

}  // namespace

Stored decode_tiff(Bytes bytes, const std::string& name) {
  Source source{bytes};
  const Tiff tiff = open(source);
  const auto unreadable = [&] {
    bad_image(name, source.problem.empty() ? "not a readable tiff"
                                           : fmt::format("not a readable tiff ({})", source.problem));
  };
  if (!tiff) unreadable();
  uint32_t width = 0, height = 0;
  uint16_t orientation = 1;
  Samples s;
  TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height);
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_BITSPERSAMPLE, &s.bits);
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_SAMPLEFORMAT, &s.format);
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_SAMPLESPERPIXEL, &s.channels);
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_ORIENTATION, &orientation);
  check_size(width, height, bytes.size(), name);
  Stored out;
  out.orientation = orientation >= 1 && orientation <= 8 ? orientation : 1;
  const bool floats = s.format == SAMPLEFORMAT_IEEEFP && (s.bits == 32 || s.bits == 64);
  const bool numbers = (s.format == SAMPLEFORMAT_UINT || s.format == SAMPLEFORMAT_INT) && s.bits == 32;
  if (floats || numbers) {
    if (s.channels < 1 || s.channels > 16) unreadable();
    out.pixels = decode_deep(tiff.get(), s, width, height, source, name);
    return out;
  }
  std::vector<uint32_t> raster(size_t{width} * height);
  // Asking for the orientation that it has leaves the rows as they are stored; we turn it ourselves, because
  // libtiff only mirrors.
  if (!TIFFReadRGBAImageOriented(tiff.get(), width, height, raster.data(), out.orientation, 1)) unreadable();
  if (!source.problem.empty()) unreadable();  // damaged data inside a strip is said, not returned
  out.pixels = Pixels(static_cast<int>(width), static_cast<int>(height), 3);
  uint8_t* to = out.pixels.data.data();
  for (const uint32_t p : raster) {  // colours are multiplied by alpha already
    const unsigned white = 255 - TIFFGetA(p);
    *to++ = static_cast<uint8_t>(std::min<unsigned>(255, TIFFGetR(p) + white));
    *to++ = static_cast<uint8_t>(std::min<unsigned>(255, TIFFGetG(p) + white));
    *to++ = static_cast<uint8_t>(std::min<unsigned>(255, TIFFGetB(p) + white));
  }
  return out;
}

}  // namespace ebclr::image
