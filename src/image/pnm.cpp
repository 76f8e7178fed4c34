#include <algorithm>

#include "image/decoders.h"

namespace ebclr::image {

// Sizes and the length of binary pixels were checked by inspect().
Stored decode_pnm(Bytes bytes, const std::string& name) {
  const uint8_t* p = as_u8(bytes);
  size_t at = 2;
  const auto skip = [&] {
    for (; at < bytes.size(); ++at) {
      if (p[at] == '#') {
        while (at < bytes.size() && p[at] != '\n') ++at;
        if (at >= bytes.size()) break;
      } else if (p[at] != ' ' && p[at] != '\n' && p[at] != '\r' && p[at] != '\t') {
        return;
      }
    }
    bad_image(name, "the pnm ends early");
  };
  const auto number = [&]() -> unsigned {
    skip();
    unsigned v = 0;
    if (p[at] < '0' || p[at] > '9') bad_image(name, fmt::format("offset {}: expected a number", at));
    while (at < bytes.size() && p[at] >= '0' && p[at] <= '9' && v < 100'000'000) v = v * 10 + (p[at++] - '0');
    return v;
  };
  const char kind = static_cast<char>(p[1]);
  const bool text = kind <= '3', bitmap = kind == '1' || kind == '4';
  const int width = static_cast<int>(number()), height = static_cast<int>(number());
  const unsigned top = bitmap ? 1 : number();
  if (top < 1 || top > 65535) bad_image(name, fmt::format("a largest value of {}; expected 1 to 65535", top));
  Stored out;
  out.pixels = Pixels(width, height, kind == '3' || kind == '6' ? 3 : 1);
  const auto scaled = [&](unsigned v) {
    v = std::min(v, top);
    return static_cast<uint8_t>(bitmap ? 255 - 255 * v : (v * 255 + top / 2) / top);
  };
  if (!text) ++at;  // the one space behind the header
  const size_t samples = out.pixels.data.size();
  if (kind == '4') {
    const size_t stride = (static_cast<size_t>(width) + 7) / 8;
    if (at + stride * static_cast<size_t>(height) > bytes.size()) bad_image(name, "the pnm ends early");
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        out.pixels.row(y)[x] =
            scaled(p[at + static_cast<size_t>(y) * stride + static_cast<size_t>(x) / 8] >> (7 - x % 8) & 1);
    return out;
  }
  const size_t each = top > 255 ? 2 : 1;
  if (!text && at + samples * each > bytes.size()) bad_image(name, "the pnm ends early");
  for (size_t i = 0; i < samples; ++i) {
    unsigned v = 0;
    if (kind == '1') {  // digits may stand without spaces
      skip();
      v = p[at++] - '0';
    } else if (text) {
      v = number();
    } else {
      v = each == 2 ? p[at + 2 * i] << 8 | p[at + 2 * i + 1] : p[at + i];
    }
    out.pixels.data[i] = scaled(v);
  }
  return out;
}

}  // namespace ebclr::image
