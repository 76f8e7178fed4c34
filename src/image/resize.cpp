#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/clones.h"

namespace ebclr::image {
namespace {

// Source positions [first, first + count) and their weights for each output position.
struct Taps {
  std::vector<int> first, count;
  std::vector<float> weight;  // `most` per output position
  int most = 1;

  Taps(int in, int out) : first(out), count(out) {
    const double scale = static_cast<double>(in) / out;
    most = in > out ? static_cast<int>(std::ceil(scale)) + 1 : 2;
    weight.assign(size_t(out) * most, 0.0f);
    for (int i = 0; i < out; ++i) {
      float* w = weight.data() + size_t(i) * most;
      if (in > out) {  // the area that it covers
        const double low = i * scale, high = std::min<double>(in, (i + 1) * scale);
        const int from = static_cast<int>(low), to = std::min(in, static_cast<int>(std::ceil(high - 1e-9)));
        first[i] = from;
        count[i] = std::max(1, to - from);
        for (int k = 0; k < count[i]; ++k) {
          const double covered = std::min<double>(high, from + k + 1) - std::max<double>(low, from + k);
          w[k] = static_cast<float>(covered / (high - low));
        }
      } else {
        const double x = std::clamp((i + 0.5) * scale - 0.5, 0.0, static_cast<double>(in - 1));
        const int from = std::min(static_cast<int>(x), std::max(0, in - 2));
        first[i] = from;
        count[i] = std::min(2, in);
        w[0] = static_cast<float>(1 - (x - from));
        if (in > 1) w[1] = static_cast<float>(x - from);
      }
    }
  }
};

EBCLR_CLONES void add_row(const uint8_t* __restrict row, float weight, int64_t n, float* __restrict sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += weight * static_cast<float>(row[i]);
}

}  // namespace

Region centre_square(const Pixels& p) {
  const int side = std::min(p.width, p.height);
  return {(p.width - side) / 2, (p.height - side) / 2, side, side};
}

Pixels resize(const Pixels& from, const Region& region, int width, int height) {
  Pixels out(width, height, from.channels);
  const int c = from.channels;
  const Taps rows(region.height, height), columns(region.width, width);
  std::vector<float> line(size_t(region.width) * c);
  for (int y = 0; y < height; ++y) {
    std::fill(line.begin(), line.end(), 0.0f);
    for (int k = 0; k < rows.count[y]; ++k)
      add_row(from.row(region.top + rows.first[y] + k) + size_t(region.left) * c,
              rows.weight[size_t(y) * rows.most + k], static_cast<int64_t>(line.size()), line.data());
    uint8_t* to = out.row(y);
    for (int x = 0; x < width; ++x) {
      const float* source = line.data() + size_t(columns.first[x]) * c;
      const float* weight = columns.weight.data() + size_t(x) * columns.most;
      float sum[3] = {0, 0, 0};
      for (int k = 0; k < columns.count[x]; ++k, source += c)
        for (int j = 0; j < c; ++j) sum[j] += weight[k] * source[j];
      for (int j = 0; j < c; ++j) *to++ = static_cast<uint8_t>(std::clamp(sum[j] + 0.5f, 0.0f, 255.0f));
    }
  }
  return out;
}

Pixels resize(const Pixels& from, int width, int height) {
  return resize(from, {0, 0, from.width, from.height}, width, height);
}

void square_planes(const Pixels& from, int size, bool grayscale, uint8_t* out) {
  const auto region = centre_square(from);
  const Pixels square = resize(from, region, size, size);
  const size_t area = size_t(size) * size_t(size);
  const uint8_t* p = square.data.data();
  if (from.channels == 1) {
    for (int c = 0; c < (grayscale ? 1 : 3); ++c) std::copy_n(p, area, out + size_t(c) * area);
  } else if (grayscale) {
    for (size_t i = 0; i < area; ++i, p += 3)
      out[i] = static_cast<uint8_t>((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 32768) >> 16);
  } else {
    for (size_t i = 0; i < area; ++i, p += 3)
      for (int c = 0; c < 3; ++c) out[size_t(c) * area + i] = p[c];
  }
}

}  // namespace ebclr::image
