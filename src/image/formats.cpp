#include "image/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "image/decoders.h"

namespace ebclr::image {
namespace {

[[noreturn]] void fail(const std::string& name, uint64_t offset, const std::string& what) {
  bad_image(name, fmt::format("offset {}: {}", offset, what));
}

// Bounds-checked reads from a file in memory.
class Reader {
 public:
  Reader(Bytes data, const std::string& name) : data_(data), name_(name) {}

  uint64_t size() const { return data_.size(); }
  uint8_t u8(uint64_t at) const {
    if (at >= data_.size()) fail(name_, data_.size(), "the file ends early; more of its header was expected");
    return static_cast<uint8_t>(data_[at]);
  }
  uint64_t big(uint64_t at, int bytes) const {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v = v << 8 | u8(at + i);
    return v;
  }
  uint64_t little(uint64_t at, int bytes) const {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; --i) v = v << 8 | u8(at + i);
    return v;
  }
  bool starts(uint64_t at, std::string_view text) const {
    return at + text.size() <= data_.size() && std::memcmp(data_.data() + at, text.data(), text.size()) == 0;
  }
  /// Where the next byte of that value is, or the size.
  uint64_t find(uint8_t value, uint64_t at) const {
    if (at >= data_.size()) return data_.size();
    const void* p = std::memchr(data_.data() + at, value, data_.size() - at);
    return p ? static_cast<uint64_t>(static_cast<const std::byte*>(p) - data_.data()) : data_.size();
  }
  const std::string& name() const { return name_; }

 private:
  Bytes data_;
  const std::string& name_;
};

Header inspect_png(const Reader& b) {
  Header h{.format = Format::kPng};
  uint64_t at = 8;
  bool first = true;
  for (;;) {
    const uint64_t length = b.big(at, 4);
    if (first && !b.starts(at + 4, "IHDR")) fail(b.name(), at + 4, "no IHDR chunk; expected it first");
    if (first) {
      h.width = b.big(at + 8, 4);
      h.height = b.big(at + 12, 4);
      first = false;
    }
    if (length > b.size() || at + 12 + length > b.size())
      fail(b.name(), at, fmt::format("a PNG chunk of {} bytes runs over the end of the file", length));
    if (b.starts(at + 4, "IEND")) return h;
    at += 12 + length;
  }
}

Header inspect_jpeg(const Reader& b) {
  Header h{.format = Format::kJpeg};
  uint64_t at = 2;
  for (;;) {
    if (b.u8(at) != 0xFF)
      fail(b.name(), at, fmt::format("byte 0x{:02x}; expected a JPEG marker (0xff)", b.u8(at)));
    const uint8_t marker = b.u8(at + 1);
    if (marker == 0xFF) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xD9) break;
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      at += 2;
      continue;
    }
    const uint64_t length = b.big(at + 2, 2);
    if (length < 2)
      fail(b.name(), at + 2, fmt::format("JPEG segment length {}; expected at least 2", length));
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame) {
      // Decoders differ in which of two they believe: the size would be checked on one and allocated by the
      // other.
      if (h.width != 0) fail(b.name(), at, "a second frame header; expected one");
      h.height = b.big(at + 5, 2);
      h.width = b.big(at + 7, 2);
    }
    at += 2 + length;
    if (marker == 0xDA) {  // entropy-coded data up to the next marker
      for (at = b.find(0xFF, at); b.u8(at + 1) == 0 || (b.u8(at + 1) >= 0xD0 && b.u8(at + 1) <= 0xD7);)
        at = b.find(0xFF, at + 2);
    }
  }
  return h;
}

Header inspect_webp(const Reader& b) {
  Header h{.format = Format::kWebp};
  const uint64_t length = b.little(4, 4);
  if (length + 8 > b.size())
    fail(b.name(), 4, fmt::format("the header announces {} bytes, the file holds {}", length + 8, b.size()));
  if (b.starts(12, "VP8 ")) {
    h.width = b.little(26, 2) & 0x3FFF;
    h.height = b.little(28, 2) & 0x3FFF;
  } else if (b.starts(12, "VP8L")) {
    const uint64_t v = b.little(21, 4);
    h.width = (v & 0x3FFF) + 1;
    h.height = (v >> 14 & 0x3FFF) + 1;
  } else if (b.starts(12, "VP8X")) {
    h.width = b.little(24, 3) + 1;
    h.height = b.little(27, 3) + 1;
  } else {
    fail(b.name(), 12, "unknown WebP chunk; expected VP8, VP8L or VP8X");
  }
  return h;
}

Header inspect_pnm(const Reader& b) {
  Header h{.format = Format::kPnm};
  uint64_t at = 2;
  const auto number = [&] {
    for (;;) {
      const uint8_t c = b.u8(at);
      if (c == '#') {
        while (b.u8(at) != '\n') ++at;
      } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
        break;
      }
      ++at;
    }
    uint64_t v = 0;
    if (b.u8(at) < '0' || b.u8(at) > '9') fail(b.name(), at, "expected a number in the PNM header");
    while (b.u8(at) >= '0' && b.u8(at) <= '9') {
      v = v * 10 + (b.u8(at++) - '0');
      if (v > 1'000'000'000) fail(b.name(), at, "a number of the PNM header is over a billion");
    }
    return v;
  };
  const uint8_t kind = b.u8(1);
  h.width = number();
  h.height = number();
  if (kind == '5' || kind == '6') {
    const uint64_t top = number();
    const uint64_t body = h.width * h.height * (kind == '6' ? 3 : 1) * (top > 255 ? 2 : 1);
    if (h.width <= kMaxPixels && h.height <= kMaxPixels && at + 1 + body > b.size())
      fail(b.name(), at + 1,
           fmt::format("{} bytes of pixels expected, the file holds {}", body,
                       b.size() - std::min(b.size(), at + 1)));
  }
  return h;
}

// Classic TIFF (42) and BigTIFF (43): the first directory's width and height.
Header inspect_tiff(const Reader& b) {
  Header h{.format = Format::kTiff};
  const bool little = b.u8(0) == 'I';
  const auto value = [&](uint64_t at, int bytes) { return little ? b.little(at, bytes) : b.big(at, bytes); };
  const uint64_t version = value(2, 2);
  if (version != 42 && version != 43)
    fail(b.name(), 2, fmt::format("TIFF version {}; expected 42 or 43", version));
  const bool large = version == 43;
  const uint64_t ifd = large ? value(8, 8) : value(4, 4);
  if (ifd >= b.size()) fail(b.name(), 4, "the TIFF directory lies behind the end of the file");
  const uint64_t entries = large ? value(ifd, 8) : value(ifd, 2);
  const uint64_t first = ifd + (large ? 8 : 2), step = large ? 20 : 12;
  if (entries > b.size() / step) fail(b.name(), ifd, fmt::format("a TIFF directory of {} entries", entries));
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = first + step * i, tag = value(at, 2), type = value(at + 2, 2);
    if (tag != 256 && tag != 257) continue;
    (tag == 256 ? h.width : h.height) = value(at + (large ? 12 : 8), type == 3 ? 2 : 4);
  }
  return h;
}

bool brand_is(Bytes head, size_t at, std::initializer_list<std::string_view> names) {
  if (at + 4 > head.size()) return false;
  const std::string_view brand(reinterpret_cast<const char*>(head.data()) + at, 4);
  return std::find(names.begin(), names.end(), brand) != names.end();
}

}  // namespace

Format sniff(Bytes head) {
  const auto starts = [&](size_t at, std::string_view text) {
    return at + text.size() <= head.size() && std::memcmp(head.data() + at, text.data(), text.size()) == 0;
  };
  const auto byte = [&](size_t at) { return at < head.size() ? static_cast<uint8_t>(head[at]) : 0; };
  if (starts(0, "\xFF\xD8\xFF")) return Format::kJpeg;
  if (starts(0, "\x89PNG\r\n\x1a\n")) return Format::kPng;
  if (starts(0, "RIFF") && starts(8, "WEBP")) return Format::kWebp;
  if (starts(0, "GIF87a") || starts(0, "GIF89a")) return Format::kGif;
  if (starts(0, std::string_view("II\x2A\0", 4)) || starts(0, std::string_view("MM\0\x2A", 4)) ||
      starts(0, std::string_view("II\x2B\0", 4)) || starts(0, std::string_view("MM\0\x2B", 4)))
    return Format::kTiff;
  if (starts(4, "ftyp")) {
    // The major brand, or any of the compatible ones that fit into the head.
    const size_t end =
        std::min<size_t>(head.size(), byte(2) == 0 && byte(1) == 0 && byte(0) == 0 ? byte(3) : 64);
    for (size_t at = 8; at + 4 <= end; at += 4)
      if (brand_is(head, at, {"avif", "avis"})) return Format::kAvif;
    for (size_t at = 8; at + 4 <= end; at += 4)
      if (brand_is(head, at, {"heic", "heix", "heim", "heis", "hevc", "hevx", "mif1", "msf1"}))
        return Format::kHeic;
    return Format::kUnknown;
  }
  // Two letters are little: a bitmap must also name one of the header sizes that exist, a PNM go on with
  // space.
  if (starts(0, "BM") && head.size() >= 18) {
    const unsigned size = byte(14);
    if (byte(15) == 0 && byte(16) == 0 && byte(17) == 0 &&
        (size == 12 || size == 16 || size == 40 || size == 52 || size == 56 || size == 64 || size == 108 ||
         size == 124))
      return Format::kBmp;
  }
  if (byte(0) == 'P' && byte(1) >= '1' && byte(1) <= '6' &&
      (byte(2) == ' ' || byte(2) == '\n' || byte(2) == '\t' || byte(2) == '\r' || byte(2) == '#'))
    return Format::kPnm;
  return Format::kUnknown;
}

std::string_view name_of(Format format) {
  constexpr std::array<std::string_view, 10> names = {"unknown", "jpeg", "png", "bmp",  "pnm",
                                                      "webp",    "tiff", "gif", "avif", "heic"};
  return names[static_cast<size_t>(format)];
}

std::string readable_formats() {
  return std::string("jpeg, png, gif, webp, tiff, bmp, ppm/pgm/pbm") + (has_avif() ? ", avif" : "") +
         (has_heif() ? ", heic" : "");
}

bool has_picture_name(std::string_view file_name) {
  const auto dot = file_name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string e(file_name.substr(dot + 1));
  std::transform(e.begin(), e.end(), e.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array<std::string_view, 17> endings = {"jpg", "jpeg", "jpe",  "jfif", "png", "bmp",
                                                        "ppm", "pgm",  "pbm",  "pnm",  "gif", "webp",
                                                        "tif", "tiff", "avif", "heic", "heif"};
  return std::find(endings.begin(), endings.end(), e) != endings.end();
}

Header inspect(Bytes bytes, const std::string& name) {
  const Reader b(bytes, name);
  if (bytes.empty()) fail(name, 0, "the file is empty");
  Header h{.format = sniff(bytes)};
  switch (h.format) {
    case Format::kPng:
      h = inspect_png(b);
      break;
    case Format::kJpeg:
      h = inspect_jpeg(b);
      break;
    case Format::kWebp:
      h = inspect_webp(b);
      break;
    case Format::kBmp: {
      const bool old = b.little(14, 4) == 12;
      h.width = b.little(18, old ? 2 : 4);
      h.height = b.little(old ? 20 : 22, old ? 2 : 4);
      if (!old && h.height >> 31) h.height = (uint64_t{1} << 32) - h.height;  // top-down
      break;
    }
    case Format::kPnm:
      h = inspect_pnm(b);
      break;
    case Format::kTiff:
      h = inspect_tiff(b);
      break;
    case Format::kGif:
      h.width = b.little(6, 2);
      h.height = b.little(8, 2);
      break;
    case Format::kAvif:
    case Format::kHeic:
      return h;
    case Format::kUnknown:
      fail(name, 0, "unknown magic number; expected " + readable_formats());
  }
  check_size(h.width, h.height, bytes.size(), name, h.format == Format::kJpeg ? kMaxJpegPixels : kMaxPixels);
  return h;
}

}  // namespace ebclr::image
