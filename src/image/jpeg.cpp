#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which wants FILE
#include <cstring>
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "image/decoders.h"

namespace ebclr::image {
namespace {

// libjpeg reports by calling error_exit, which must not return: it jumps back to guard(), whose callers hold
// no object with a destructor between the two.
struct Trap {
  jpeg_error_mgr manager{};
  std::jmp_buf jump{};
  char text[JMSG_LENGTH_MAX] = {};
};

void on_error(j_common_ptr info) {
  auto* trap = reinterpret_cast<Trap*>(info->err);
  info->err->format_message(info, trap->text);
  std::longjmp(trap->jump, 1);
}

// A progressive file may ask for any number of passes over all coefficients.
constexpr int kMaxScans = 200;
void on_progress(j_common_ptr info) {
  const auto* d = reinterpret_cast<j_decompress_ptr>(info);
  if (d->input_scan_number > kMaxScans) {
    auto* trap = reinterpret_cast<Trap*>(info->err);
    std::snprintf(trap->text, sizeof trap->text, "more than %d scans", kMaxScans);
    std::longjmp(trap->jump, 1);
  }
}

class Decompressor {
 public:
  explicit Decompressor(const std::string& name) : name_(name) {
    info.err = jpeg_std_error(&trap_.manager);
    trap_.manager.error_exit = on_error;
    trap_.manager.output_message = [](j_common_ptr) {};
    guard([&] { jpeg_create_decompress(&info); });
    info.mem->max_memory_to_use =
        700'000'000;  // beyond it libjpeg wants a file, which this build does not have
    progress_.progress_monitor = on_progress;
    info.progress = &progress_;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  template <class F>
  void guard(F call) {
    if (setjmp(trap_.jump)) bad_image(name_, fmt::format("not a readable jpeg ({})", trap_.text));
    call();
  }

  jpeg_decompress_struct info{};

 private:
  const std::string& name_;
  Trap trap_;
  jpeg_progress_mgr progress_{};
};

// The largest reduction (1, 2, 4 or 8, the ones with fast code) that leaves the short side long enough.
unsigned reduction(uint64_t shorter, int at_least) {
  unsigned by = 1;
  if (at_least <= 0) return by;
  while (by < 8 && (shorter + 2 * by - 1) / (2 * by) >= static_cast<uint64_t>(at_least)) by *= 2;
  return by;
}

}  // namespace

Stored decode_jpeg(Bytes bytes, const std::string& name, int at_least) {
  Decompressor d(name);
  auto& info = d.info;
  d.guard([&] {
    jpeg_mem_src(&info, as_u8(bytes), static_cast<unsigned long>(bytes.size()));
    jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info, TRUE);
  });
  Stored out;
  for (auto* m = info.marker_list; m; m = m->next)
    if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && std::memcmp(m->data, "Exif", 4) == 0) {
      out.orientation = exif_orientation({reinterpret_cast<const std::byte*>(m->data), m->data_length});
      break;
    }
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  const bool grey = info.jpeg_color_space == JCS_GRAYSCALE;
  info.out_color_space = cmyk ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = reduction(std::min(info.image_width, info.image_height), at_least);
  d.guard([&] { jpeg_calc_output_dimensions(&info); });
  if (uint64_t{info.output_width} * info.output_height > kMaxPixels)
    bad_image(name, fmt::format("{} x {} pixels; too large to be read", info.image_width, info.image_height));
  d.guard([&] { jpeg_start_decompress(&info); });
  out.pixels =
      Pixels(static_cast<int>(info.output_width), static_cast<int>(info.output_height), grey ? 1 : 3);
  std::vector<uint8_t> inks(cmyk ? size_t{4} * info.output_width : 0);
  const bool inverted = info.saw_Adobe_marker;  // Adobe stores how much ink is missing
  while (info.output_scanline < info.output_height) {
    uint8_t* row = out.pixels.row(static_cast<int>(info.output_scanline));
    JSAMPROW to = cmyk ? inks.data() : row;
    d.guard([&] { jpeg_read_scanlines(&info, &to, 1); });
    if (!cmyk) continue;
    for (size_t x = 0; x < info.output_width; ++x) {
      const uint8_t* ink = inks.data() + 4 * x;
      for (int k = 0; k < 3; ++k) {
        const unsigned light = inverted ? ink[k] : 255 - ink[k], white = inverted ? ink[3] : 255 - ink[3];
        row[3 * x + k] = static_cast<uint8_t>((light * white + 127) / 255);
      }
    }
  }
  // What follows the last row does not matter; jpeg_finish_decompress would only read on.
  return out;
}

}  // namespace ebclr::image
