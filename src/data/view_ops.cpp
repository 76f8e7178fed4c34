#include "data/view_ops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/clones.h"

namespace ebclr::data {

namespace {

// torchvision's luminance.
constexpr float kRed = 0.2989f, kGreen = 0.587f, kBlue = 0.114f;

inline float clamp01(float x) {
  return std::min(std::max(x, 0.0f), 1.0f);
}

// For each output position the two source positions and the weight of the second.
struct Taps {
  std::vector<int32_t> first, second;
  std::vector<float> weight;

  void set(int64_t source, int64_t out, bool reversed) {
    first.resize(out);
    second.resize(out);
    weight.resize(out);
    const float scale = static_cast<float>(source) / static_cast<float>(out);
    for (int64_t i = 0; i < out; ++i) {
      const float x = std::max((static_cast<float>(i) + 0.5f) * scale - 0.5f, 0.0f);
      const auto x0 = std::min(static_cast<int32_t>(x), static_cast<int32_t>(source - 1));
      const int64_t at = reversed ? out - 1 - i : i;
      first[at] = x0;
      second[at] = std::min(x0 + 1, static_cast<int32_t>(source - 1));
      weight[at] = x - static_cast<float>(x0);
    }
  }
};

EBCLR_CLONES void blend_rows(const float* __restrict a, const float* __restrict b, float weight, float scale,
                             int64_t n, float* __restrict out) {
  const float wa = (1.0f - weight) * scale, wb = weight * scale;
  for (int64_t i = 0; i < n; ++i) out[i] = wa * a[i] + wb * b[i];
}

EBCLR_CLONES void blend_rows(const uint8_t* __restrict a, const uint8_t* __restrict b, float weight,
                             float scale, int64_t n, float* __restrict out) {
  const float wa = (1.0f - weight) * scale, wb = weight * scale;
  for (int64_t i = 0; i < n; ++i) out[i] = wa * static_cast<float>(a[i]) + wb * static_cast<float>(b[i]);
}

EBCLR_CLONES void sample_row(const float* __restrict row, const int32_t* __restrict first,
                             const int32_t* __restrict second, const float* __restrict weight, int64_t n,
                             float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = (1.0f - weight[i]) * row[first[i]] + weight[i] * row[second[i]];
}

template <typename Pixel>
void crop_resize_any(const Pixel* src, int64_t channels, Plane from, const Crop& crop, bool flip, Plane to,
                     float scale, float* out) {
  // Kept per thread: a view is made tens of thousands of times per second.
  thread_local Taps columns, rows;
  thread_local std::vector<float> line;
  columns.set(crop.width, to.width, flip);
  rows.set(crop.height, to.height, false);
  line.resize(crop.width);
  for (int64_t c = 0; c < channels; ++c) {
    const Pixel* plane = src + (c * from.height + crop.top) * from.width + crop.left;
    for (int64_t y = 0; y < to.height; ++y) {
      blend_rows(plane + rows.first[y] * from.width, plane + rows.second[y] * from.width, rows.weight[y],
                 scale, crop.width, line.data());
      sample_row(line.data(), columns.first.data(), columns.second.data(), columns.weight.data(), to.width,
                 out + (c * to.height + y) * to.width);
    }
  }
}

}  // namespace

void crop_resize(const float* src, int64_t channels, Plane from, const Crop& crop, bool flip, Plane to,
                 float* out) {
  crop_resize_any(src, channels, from, crop, flip, to, 1.0f, out);
}

void crop_resize(const uint8_t* src, int64_t channels, Plane from, const Crop& crop, bool flip, Plane to,
                 float* out) {
  crop_resize_any(src, channels, from, crop, flip, to, 1.0f / 255.0f, out);
}

EBCLR_CLONES void adjust_brightness(float* image, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) image[i] = clamp01(image[i] * factor);
}

EBCLR_CLONES void adjust_contrast(float* image, int64_t area, float factor) {
  const float* __restrict r = image;
  const float* __restrict g = image + area;
  const float* __restrict b = image + 2 * area;
  // Sixteen partial sums in a fixed order: fast, and the same bits for every vector width.
  constexpr int kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= area; i += kLanes)
    for (int j = 0; j < kLanes; ++j) sums[j] += kRed * r[i + j] + kGreen * g[i + j] + kBlue * b[i + j];
  for (int j = 0; i + j < area; ++j) sums[j] += kRed * r[i + j] + kGreen * g[i + j] + kBlue * b[i + j];
  double total = 0;
  for (float s : sums) total += s;
  const float base = (1.0f - factor) * static_cast<float>(total / static_cast<double>(area));
  for (int64_t k = 0; k < 3 * area; ++k) image[k] = clamp01(factor * image[k] + base);
}

EBCLR_CLONES void adjust_saturation(float* image, int64_t area, float factor) {
  float* __restrict r = image;
  float* __restrict g = image + area;
  float* __restrict b = image + 2 * area;
  for (int64_t i = 0; i < area; ++i) {
    const float base = (1.0f - factor) * (kRed * r[i] + kGreen * g[i] + kBlue * b[i]);
    r[i] = clamp01(factor * r[i] + base);
    g[i] = clamp01(factor * g[i] + base);
    b[i] = clamp01(factor * b[i] + base);
  }
}

EBCLR_CLONES void adjust_hue(float* image, int64_t area, float shift) {
  float* __restrict red = image;
  float* __restrict green = image + area;
  float* __restrict blue = image + 2 * area;
  const float turn = 6.0f * shift + 12.0f;  // in sixths of a circle, positive whatever the shift
  for (int64_t i = 0; i < area; ++i) {
    const float r = red[i], g = green[i], b = blue[i];
    const float high = std::max(r, std::max(g, b)), low = std::min(r, std::min(g, b));
    const float range = high - low;
    const float divisor = range > 0.0f ? range : 1.0f;
    // The hue in sixths: 0 at red, 2 at green, 4 at blue.
    const float at_red = (g - b) / divisor, at_green = (b - r) / divisor + 2.0f,
                at_blue = (r - g) / divisor + 4.0f;
    const float h = high == r ? at_red : (high == g ? at_green : at_blue);
    const float turned = h + turn;
    const float sixths = turned - 6.0f * static_cast<float>(static_cast<int32_t>(turned * (1.0f / 6.0f)));
    // A channel of a fully saturated hue is a trapezoid over the circle: high for 2 sixths, low for 2, ramps
    // between; each channel sees it from its own side. This is HSV to RGB without a case per sixth.
    const float from_red = std::abs(sixths - 3.0f) - 1.0f;
    const float from_green = 2.0f - std::abs(sixths - 2.0f);
    const float from_blue = 2.0f - std::abs(sixths - 4.0f);
    red[i] = low + range * clamp01(from_red);
    green[i] = low + range * clamp01(from_green);
    blue[i] = low + range * clamp01(from_blue);
  }
}

EBCLR_CLONES void to_grayscale(float* image, int64_t area) {
  float* __restrict r = image;
  float* __restrict g = image + area;
  float* __restrict b = image + 2 * area;
  for (int64_t i = 0; i < area; ++i) r[i] = g[i] = b[i] = kRed * r[i] + kGreen * g[i] + kBlue * b[i];
}

namespace {

inline int64_t reflect(int64_t i, int64_t n) {
  return i < 0 ? -i : (i >= n ? 2 * n - 2 - i : i);
}

EBCLR_CLONES void add_scaled(const float* __restrict src, float weight, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] += weight * src[i];
}

}  // namespace

void gaussian_blur(float* image, int64_t channels, int64_t height, int64_t width, int kernel, double sigma,
                   float* scratch) {
  const int64_t half = kernel / 2;
  std::vector<float> weights(kernel);
  double sum = 0;
  for (int k = 0; k < kernel; ++k) sum += std::exp(-0.5 * (k - half) * (k - half) / (sigma * sigma));
  for (int k = 0; k < kernel; ++k)
    weights[k] = static_cast<float>(std::exp(-0.5 * (k - half) * (k - half) / (sigma * sigma)) / sum);
  std::vector<float> padded(width + 2 * half);
  for (int64_t c = 0; c < channels; ++c) {
    float* plane = image + c * height * width;
    std::fill(scratch, scratch + height * width, 0.0f);
    for (int64_t y = 0; y < height; ++y)
      for (int k = 0; k < kernel; ++k)
        add_scaled(plane + reflect(y + k - half, height) * width, weights[k], width, scratch + y * width);
    std::fill(plane, plane + height * width, 0.0f);
    for (int64_t y = 0; y < height; ++y) {
      const float* row = scratch + y * width;
      for (int64_t x = -half; x < width + half; ++x) padded[x + half] = row[reflect(x, width)];
      for (int k = 0; k < kernel; ++k) add_scaled(padded.data() + k, weights[k], width, plane + y * width);
    }
  }
}

EBCLR_CLONES void finish(const float* __restrict image, const float* __restrict noise, int64_t n, float sigma,
                         float* __restrict out) {
  if (sigma == 0.0f) {
    for (int64_t i = 0; i < n; ++i) out[i] = 2.0f * image[i] - 1.0f;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = 2.0f * (image[i] + sigma * noise[i]) - 1.0f;
  }
}

}  // namespace ebclr::data
