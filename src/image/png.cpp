#include <png.h>

#include <csetjmp>
#include <cstring>

#include "image/decoders.h"

namespace ebclr::image {
namespace {

struct Source {
  Bytes bytes;
  size_t at = 0;
  char text[128] = {};
};

void on_error(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source->text, sizeof source->text, "%s", message);
  std::longjmp(*png_set_longjmp_fn(png, std::longjmp, sizeof(std::jmp_buf)), 1);
}

void on_read(png_structp png, png_bytep to, size_t n) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (n > source->bytes.size() - source->at) png_error(png, "the file ends early");
  std::memcpy(to, source->bytes.data() + source->at, n);
  source->at += n;
}

class PngReader {
 public:
  PngReader(Bytes bytes, const std::string& name) : name_(name), source_{bytes} {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, on_error,
                                 [](png_structp, png_const_charp) {});
    if (png) info = png_create_info_struct(png);
    if (!info) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      bad_image(name, "not enough memory to decode it");
    }
    png_set_read_fn(png, &source_, on_read);
    png_set_user_limits(png, 1'000'000, 1'000'000);
    png_set_chunk_malloc_max(png, 16'000'000);
    png_set_chunk_cache_max(png, 200);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // The caller holds no object with a destructor inside `call`.
  template <class F>
  void guard(F call) {
    if (setjmp(png_jmpbuf(png))) bad_image(name_, fmt::format("not a readable png ({})", source_.text));
    call();
  }

  png_structp png = nullptr;
  png_infop info = nullptr;

 private:
  const std::string& name_;
  Source source_;
};

}  // namespace

Stored decode_png(Bytes bytes, const std::string& name) {
  PngReader r(bytes, name);
  png_uint_32 width = 0, height = 0;
  int channels = 0;
  r.guard([&] {
    png_read_info(r.png, r.info);
    png_set_expand(r.png);    // palettes to colours, 1, 2 and 4 bits to 8, a transparent colour to alpha
    png_set_scale_16(r.png);  // rounds; png_set_strip_16 would cut
    png_set_interlace_handling(r.png);
    png_read_update_info(r.png, r.info);
    width = png_get_image_width(r.png, r.info);
    height = png_get_image_height(r.png, r.info);
    channels = png_get_channels(r.png, r.info);
  });
  check_size(width, height, bytes.size(), name);
  Stored out;
  std::vector<uint8_t> raw(size_t{width} * height * static_cast<size_t>(channels));
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = raw.data() + y * width * static_cast<size_t>(channels);
  png_bytep exif = nullptr;
  png_uint_32 exif_size = 0;
  r.guard([&] {
    png_read_image(r.png, rows.data());
    png_read_end(r.png, r.info);
    png_get_eXIf_1(r.png, r.info, &exif_size, &exif);
  });
  if (exif) out.orientation = exif_orientation({reinterpret_cast<const std::byte*>(exif), exif_size});
  const int w = static_cast<int>(width), h = static_cast<int>(height);
  if (channels == 2 || channels == 4) {
    out.pixels = flatten(raw.data(), w, h, channels);
  } else {
    out.pixels.width = w;
    out.pixels.height = h;
    out.pixels.channels = channels;
    out.pixels.data = std::move(raw);
  }
  return out;
}

}  // namespace ebclr::image
