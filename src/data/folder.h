#pragma once
// Any folder of images: found recursively, decoded in parallel, resized and centre-cropped to one size.

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "data/image_set.h"

namespace ebclr::data {

struct FolderOptions {
  int64_t image_size = 32;  ///< side of the square images that come out
  bool grayscale = false;
  std::filesystem::path labels_csv =
      {};           ///< path,label lines for a part of the images; empty: labels from sub-folders
  int threads = 0;  ///< 0: as many as there are cores
};

/// All images under `folder`, in the order of their relative paths. Labels come from the CSV, else from
/// first-level sub-folders when the images sit right inside them. Files that cannot be read are left out and
/// named in the set's notes; it is an error when most cannot.
ImageSet read_folder(const std::filesystem::path& folder, const FolderOptions& options);

/// Width, height and what else a decision before decoding needs, from an image file's own header.
struct ImageHeader {
  std::string format;  ///< "jpeg", "png", "bmp", "pnm", "webp", "tiff"
  uint64_t width = 0, height = 0;
  bool oriented = false;  ///< PNG: carries an orientation
};

/// Reads the header and, for JPEG and PNG, walks the file's parts to its end; throws Error on anything
/// malformed, truncated, or larger than a file of that size can be. `name` stands for the file in errors.
ImageHeader inspect_image(std::span<const std::byte> bytes, const std::string& name);

/// Decodes one file to out, uint8 [C, size, size] with C 1 or 3 (RGB); transparency is laid over white,
/// deeper samples are scaled to 8 bits, the camera's orientation is applied. Throws Error when it cannot.
void decode_image(std::span<const std::byte> bytes, const std::string& name, int64_t size, bool grayscale,
                  uint8_t* out);

}  // namespace ebclr::data
