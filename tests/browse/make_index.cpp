// make_index FILE COUNT: an index of drawn thumbnails, some of them copies, for the browser to look at.

#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>

#include "../index/made.h"
#include "image/encode.h"

int main(int argc, char** argv) {
  using namespace ebclr::index;
  if (argc != 3) return 2;
  const int64_t n = std::atoll(argv[2]);
  auto c = made(n, 32);
  std::vector<std::vector<uint8_t>> pictures;
  for (int k = 0; k < 10; ++k) {
    ebclr::image::Pixels image(kThumbnailSide, kThumbnailSide, 3);
    for (int y = 0; y < image.height; ++y)
      for (int x = 0; x < image.width; ++x) {
        const bool bar = x >= 8 + 4 * k && x < 38 + 4 * k && y >= 20 && y < 60;
        const uint8_t colour[3] = {static_cast<uint8_t>(25 * k), static_cast<uint8_t>(255 - 25 * k),
                                   static_cast<uint8_t>(70 * k % 255)};
        for (int c = 0; c < 3; ++c) image.row(y)[3 * x + c] = bar ? 255 : colour[c];
      }
    const auto bytes = ebclr::image::encode_jpeg(image, 85);
    const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
    pictures.emplace_back(p, p + bytes.size());
  }
  for (int64_t i = 0; i < n; ++i)
    c.thumbnails[static_cast<size_t>(i)] = pictures[static_cast<size_t>(i / 10 % 10)];
  // Names that a careless page would take for markup.
  c.paths[0] = "<img src=x onerror=document.title='bad'>.png";
  c.records[8] = c.records[7];
  c.features[8] = c.features[7];
  std::sort(c.paths.begin(), c.paths.end());
  write_index(argv[1], c);
  return 0;
}
