#include "image/encode.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which wants FILE
#include <cstdlib>
#include <memory>
// clang-format off
#include <jpeglib.h>
// clang-format on

#include "core/error.h"

namespace ebclr::image {
namespace {

void check(const Pixels& p) {
  if (p.width < 1 || p.height < 1 || (p.channels != 1 && p.channels != 3) ||
      p.data.size() != p.row_bytes() * static_cast<size_t>(p.height))
    core::usage_error("image", "cannot encode an empty picture; draw something first");
}

}  // namespace

std::vector<std::byte> encode_png(const Pixels& p) {
  check(p);
  std::vector<std::byte> out;
  png_structp png = png_create_write_struct(
      PNG_LIBPNG_VER_STRING, nullptr, [](png_structp, png_const_charp m) { core::run_error("image", m); },
      [](png_structp, png_const_charp) {});
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const auto destroy = [&](void*) { png_destroy_write_struct(&png, &info); };
  const std::unique_ptr<void, decltype(destroy)> owner(&out, destroy);
  if (!info) core::run_error("image", "not enough memory for a PNG");
  png_set_write_fn(
      png, &out,
      [](png_structp w, png_bytep data, size_t n) {
        auto* to = static_cast<std::vector<std::byte>*>(png_get_io_ptr(w));
        const auto* from = reinterpret_cast<const std::byte*>(data);
        to->insert(to->end(), from, from + n);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(p.width), static_cast<png_uint_32>(p.height), 8,
               p.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (int y = 0; y < p.height; ++y) png_write_row(png, p.row(y));
  png_write_end(png, info);
  return out;
}

std::vector<std::byte> encode_jpeg(const Pixels& p, int quality) {
  check(p);
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  errors.error_exit = [](j_common_ptr c) {
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    core::run_error("image", text);  // our own input was checked: only memory can fail
  };
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  const auto destroy = [&](void*) {
    jpeg_destroy_compress(&info);
    std::free(buffer);
  };
  const std::unique_ptr<void, decltype(destroy)> owner(&info, destroy);
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<JDIMENSION>(p.width);
  info.image_height = static_cast<JDIMENSION>(p.height);
  info.input_components = p.channels;
  info.in_color_space = p.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.optimize_coding = TRUE;
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < p.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(p.row(y));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* first = reinterpret_cast<const std::byte*>(buffer);
  return {first, first + size};
}

}  // namespace ebclr::image
