#pragma once
// Picture files to pixels, as a viewer shows them.

#include <mutex>
#include <span>
#include <string>

#include "image/pixels.h"

namespace ebclr::image {

struct DecodeOptions {
  /// Short side that the caller needs: a JPEG may be decoded at a half, quarter or eighth of its size as long
  /// as the short side stays at least this long; 0: full size.
  int at_least = 0;
  /// Held while a picture of more than 16 megapixels is decoded, so that threads do not do so all at once.
  std::mutex* large = nullptr;
};

/// Decodes one file: the first frame of an animation, transparency laid over white, deeper samples scaled to
/// 8 bits, the camera's orientation applied. Throws Error naming the file and what is wrong with it: a usage
/// error, unless it was only memory that was short.
Pixels decode(std::span<const std::byte> bytes, const std::string& name, const DecodeOptions& options = {});

}  // namespace ebclr::image
