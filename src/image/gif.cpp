#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "image/decoders.h"

namespace ebclr::image {
namespace {

struct Source {
  Bytes bytes;
  size_t at = 0;
};

int on_read(GifFileType* gif, GifByteType* to, int n) {
  auto* source = static_cast<Source*>(gif->UserData);
  const size_t take = std::min(static_cast<size_t>(std::max(n, 0)), source->bytes.size() - source->at);
  std::memcpy(to, source->bytes.data() + source->at, take);
  source->at += take;
  return static_cast<int>(take);
}

void close(GifFileType* gif) {
  int error = 0;
  DGifCloseFile(gif, &error);
}

// The transparent colour of the extension blocks before a frame; -1: none.
int read_extension(GifFileType* gif, const std::string& name, int transparent) {
  int code = 0;
  GifByteType* block = nullptr;
  if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) bad_image(name, "not a readable gif (an extension)");
  while (block) {
    GraphicsControlBlock control;
    if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
      transparent = control.TransparentColor;
    if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) bad_image(name, "not a readable gif (an extension)");
  }
  return transparent;
}

}  // namespace

Stored decode_gif(Bytes bytes, const std::string& name) {
  Source source{bytes};
  int error = 0;
  const std::unique_ptr<GifFileType, void (*)(GifFileType*)> gif(DGifOpen(&source, on_read, &error), close);
  if (!gif) bad_image(name, "not a readable gif");
  int transparent = -1;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif.get(), &type) == GIF_ERROR || type == TERMINATE_RECORD_TYPE)
      bad_image(name, "not a readable gif (no frame in it)");
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    if (type == EXTENSION_RECORD_TYPE) transparent = read_extension(gif.get(), name, transparent);
  }
  if (DGifGetImageDesc(gif.get()) == GIF_ERROR) bad_image(name, "not a readable gif (its first frame)");
  const auto& frame = gif->Image;
  const ColorMapObject* map = frame.ColorMap ? frame.ColorMap : gif->SColorMap;
  if (!map || frame.Width < 1 || frame.Height < 1) bad_image(name, "not a readable gif (no colours)");
  check_size(static_cast<uint64_t>(frame.Width), static_cast<uint64_t>(frame.Height), bytes.size(), name);
  const int width = std::max<int>(gif->SWidth, 1), height = std::max<int>(gif->SHeight, 1);
  check_size(static_cast<uint64_t>(width), static_cast<uint64_t>(height), bytes.size(), name);
  Stored out;
  out.pixels = Pixels(width, height, 3);
  std::fill(out.pixels.data.begin(), out.pixels.data.end(), uint8_t{255});
  std::vector<GifPixelType> line(static_cast<size_t>(frame.Width));
  // An interlaced frame comes in four passes: every eighth row from 0 and 4, every fourth from 2, every
  // second.
  constexpr int kFrom[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (int pass = 0; pass < (frame.Interlace ? 4 : 1); ++pass) {
    for (int y = frame.Interlace ? kFrom[pass] : 0; y < frame.Height;
         y += frame.Interlace ? kStep[pass] : 1) {
      if (DGifGetLine(gif.get(), line.data(), frame.Width) == GIF_ERROR)
        bad_image(name, "not a readable gif (its pixels end early)");
      const int to = frame.Top + y;
      if (to < 0 || to >= height) continue;
      uint8_t* row = out.pixels.row(to);
      for (int x = 0; x < frame.Width; ++x) {
        const int at = frame.Left + x, index = line[static_cast<size_t>(x)];
        if (at < 0 || at >= width || index == transparent || index >= map->ColorCount) continue;
        const auto& colour = map->Colors[index];
        row[3 * at] = colour.Red;
        row[3 * at + 1] = colour.Green;
        row[3 * at + 2] = colour.Blue;
      }
    }
  }
  return out;
}

}  // namespace ebclr::image
