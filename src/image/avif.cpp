#include "core/quiet_stderr.h"
#include "image/decoders.h"

#ifdef EBCLR_AVIF
#include <avif/avif.h>

#include <memory>

namespace ebclr::image {

bool has_avif() {
  return true;
}

namespace {

// avif turns first, then mirrors; as one of EXIF's numbers.
int orientation_of(const avifImage& image) {
  const int quarter =
      image.transformFlags & AVIF_TRANSFORM_IROT ? image.irot.angle & 3 : 0;  // anti-clockwise
  constexpr int kTurned[] = {1, 8, 3, 6};
  if (!(image.transformFlags & AVIF_TRANSFORM_IMIR)) return kTurned[quarter];
#if AVIF_VERSION_MAJOR >= 1
  const bool left_right = image.imir.axis == 1;
#else
  const bool left_right = image.imir.mode == 1;
#endif
  constexpr int kLeftRight[] = {2, 7, 4, 5}, kTopBottom[] = {4, 5, 2, 7};
  return left_right ? kLeftRight[quarter] : kTopBottom[quarter];
}

}  // namespace

Stored decode_avif(Bytes bytes, const std::string& name) {
  const core::QuietStderr quiet;  // the codecs behind it print about damaged files
  const std::unique_ptr<avifDecoder, void (*)(avifDecoder*)> decoder(avifDecoderCreate(), avifDecoderDestroy);
  if (!decoder) bad_image(name, "not enough memory to decode it");
  decoder->maxThreads = 1;  // pictures are decoded side by side
  decoder->ignoreExif = decoder->ignoreXMP = AVIF_TRUE;
  decoder->imageSizeLimit = static_cast<uint32_t>(kMaxPixels);
  const auto check = [&](avifResult result) {
    if (result != AVIF_RESULT_OK)
      bad_image(name, fmt::format("not a readable avif ({})", avifResultToString(result)));
  };
  check(avifDecoderSetIOMemory(decoder.get(), as_u8(bytes), bytes.size()));
  check(avifDecoderParse(decoder.get()));
  check_size(decoder->image->width, decoder->image->height, bytes.size(), name);
  check(avifDecoderNextImage(decoder.get()));
  const avifImage& image = *decoder->image;
  const int channels = image.alphaPlane ? 4 : 3;
  Pixels raw(static_cast<int>(image.width), static_cast<int>(image.height), channels);
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, &image);
  rgb.depth = 8;
  rgb.format = channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
  rgb.pixels = raw.data.data();
  rgb.rowBytes = static_cast<uint32_t>(raw.row_bytes());
  check(avifImageYUVToRGB(&image, &rgb));
  Stored out;
  out.orientation = orientation_of(image);
  out.pixels = channels == 4 ? flatten(raw.data.data(), raw.width, raw.height, 4) : std::move(raw);
  return out;
}

}  // namespace ebclr::image

#else

namespace ebclr::image {

bool has_avif() {
  return false;
}
Stored decode_avif(Bytes, const std::string& name) {
  bad_image(name, "an avif, and this program was built without libavif");
}

}  // namespace ebclr::image
#endif
