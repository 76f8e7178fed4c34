#include "core/quiet_stderr.h"
#include "image/decoders.h"

#ifdef EBCLR_HEIF
#include <libheif/heif.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace ebclr::image {

bool has_heif() {
  return true;
}

Stored decode_heif(Bytes bytes, const std::string& name) {
  const core::QuietStderr quiet;  // the codecs behind it print about damaged files
  const auto check = [&](const heif_error& error) {
    if (error.code != heif_error_Ok)
      bad_image(name,
                fmt::format("not a readable heic ({})", error.message ? error.message : "unknown problem"));
  };
  const std::unique_ptr<heif_context, void (*)(heif_context*)> context(heif_context_alloc(),
                                                                       heif_context_free);
  check(heif_context_read_from_memory_without_copy(context.get(), bytes.data(), bytes.size(), nullptr));
  // A picture made of tiles has a size of its own, which need not be the one that the header gives and
  // check_size sees.
  const double most_pixels = std::min(static_cast<double>(kMaxPixels),
                                      static_cast<double>(kFreePixels + kPixelsPerByte * bytes.size()));
  heif_context_set_maximum_image_size_limit(context.get(), static_cast<int>(2 * std::sqrt(most_pixels)));
  heif_image_handle* raw_handle = nullptr;
  check(heif_context_get_primary_image_handle(context.get(), &raw_handle));
  const std::unique_ptr<heif_image_handle, void (*)(const heif_image_handle*)> handle(
      raw_handle, heif_image_handle_release);
  check_size(static_cast<uint64_t>(heif_image_handle_get_width(raw_handle)),
             static_cast<uint64_t>(heif_image_handle_get_height(raw_handle)), bytes.size(), name);
  const bool alpha = heif_image_handle_has_alpha_channel(raw_handle);
  heif_image* raw_image = nullptr;
  // The library turns and mirrors by itself.
  check(heif_decode_image(raw_handle, &raw_image, heif_colorspace_RGB,
                          alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, nullptr));
  const std::unique_ptr<heif_image, void (*)(const heif_image*)> image(raw_image, heif_image_release);
  const int width = heif_image_get_width(raw_image, heif_channel_interleaved),
            height = heif_image_get_height(raw_image, heif_channel_interleaved);
  int stride = 0;
  const uint8_t* plane = heif_image_get_plane_readonly(raw_image, heif_channel_interleaved, &stride);
  if (!plane || width < 1 || height < 1) bad_image(name, "not a readable heic");
  Pixels packed(width, height, alpha ? 4 : 3);
  for (int y = 0; y < height; ++y)
    std::memcpy(packed.row(y), plane + static_cast<ptrdiff_t>(y) * stride, packed.row_bytes());
  Stored out;
  out.pixels = alpha ? flatten(packed.data.data(), width, height, 4) : std::move(packed);
  return out;
}

}  // namespace ebclr::image

#else

namespace ebclr::image {

bool has_heif() {
  return false;
}
Stored decode_heif(Bytes, const std::string& name) {
  bad_image(name, "a heic, and this program was built without libheif");
}

}  // namespace ebclr::image
#endif
