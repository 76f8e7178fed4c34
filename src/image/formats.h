#pragma once
// Which picture a file holds, by its first bytes, and what its header promises.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ebclr::image {

enum class Format { kUnknown, kJpeg, kPng, kBmp, kPnm, kWebp, kTiff, kGif, kAvif, kHeic };

/// Bytes from the start of a file that `sniff` wants to see.
inline constexpr size_t kSniffBytes = 64;

/// The format by the file's first bytes (kSniffBytes are enough); its name does not matter.
Format sniff(std::span<const std::byte> head);
/// "jpeg", "png", ...
std::string_view name_of(Format format);
/// "jpeg, png, ...": what this build can decode.
std::string readable_formats();
/// Does a file's name end like a picture's?
bool has_picture_name(std::string_view file_name);

/// What a header says before anything is decoded.
struct Header {
  Format format = Format::kUnknown;
  uint64_t width = 0, height = 0;  ///< 0 for avif and heic, whose decoders check the size themselves
};

/// Most pixels of a picture; a JPEG, which is decoded at a reduced scale, may have kMaxJpegPixels.
inline constexpr uint64_t kMaxPixels = 100'000'000, kMaxJpegPixels = 500'000'000;

/// Reads the header and, for JPEG and PNG, walks the file's parts to its end; throws Error on anything
/// malformed, truncated, or larger than a file of that size can be. `name` stands for the file in errors.
Header inspect(std::span<const std::byte> bytes, const std::string& name);

}  // namespace ebclr::image
