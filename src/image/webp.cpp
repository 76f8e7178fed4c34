#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "image/decoders.h"

namespace ebclr::image {

Stored decode_webp(Bytes bytes, const std::string& name) {
  const uint8_t* data = as_u8(bytes);
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) bad_image(name, "not a readable webp");
  check_size(static_cast<uint64_t>(features.width), static_cast<uint64_t>(features.height), bytes.size(),
             name);
  Stored out;
  const WebPData file{data, bytes.size()};
  if (features.has_animation) {
    WebPAnimDecoderOptions options;
    WebPAnimDecoderOptionsInit(&options);
    const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
        WebPAnimDecoderNew(&file, &options), WebPAnimDecoderDelete);
    uint8_t* canvas = nullptr;
    int time = 0;
    if (!decoder || !WebPAnimDecoderGetNext(decoder.get(), &canvas, &time))
      bad_image(name, "not a readable webp (its first frame is damaged)");
    out.pixels = flatten(canvas, features.width, features.height, 4);
    return out;
  }
  const int channels = features.has_alpha ? 4 : 3;
  Pixels raw(features.width, features.height, channels);
  const int stride = features.width * channels;
  const auto* done = channels == 4
                         ? WebPDecodeRGBAInto(data, bytes.size(), raw.data.data(), raw.data.size(), stride)
                         : WebPDecodeRGBInto(data, bytes.size(), raw.data.data(), raw.data.size(), stride);
  if (!done) bad_image(name, "not a readable webp");
  out.pixels = channels == 4 ? flatten(raw.data.data(), raw.width, raw.height, 4) : std::move(raw);
  const std::unique_ptr<WebPDemuxer, void (*)(WebPDemuxer*)> demuxer(WebPDemux(&file), WebPDemuxDelete);
  WebPChunkIterator chunk{};
  if (demuxer && WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &chunk)) {
    out.orientation =
        exif_orientation({reinterpret_cast<const std::byte*>(chunk.chunk.bytes), chunk.chunk.size});
    WebPDemuxReleaseChunkIterator(&chunk);
  }
  return out;
}

}  // namespace ebclr::image
