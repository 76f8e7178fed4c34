#pragma once
// Random data in both layouts (planar double, panels of float) and the distance between them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "cpu/buffer.h"
#include "cpu/kernels.h"

namespace ebclr::cpu::testing {

using Doubles = std::vector<double>;

inline Doubles random_values(std::mt19937& rng, std::size_t count, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  Doubles values(count);
  // Rounded to float first, so that both sides see the same inputs.
  for (double& v : values) v = static_cast<float>(normal(rng));
  return values;
}

inline std::vector<float> floats(const Doubles& values) {
  return {values.begin(), values.end()};
}

inline int padded(int channels, int lanes) {
  return (channels + lanes - 1) / lanes * lanes;
}

/// Planar [n][channels][pixels] to panels [n][padded/lanes][pixels][lanes].
inline Buffer to_panels(const Doubles& planar, int images, int channels, int pixels, int lanes) {
  const int wide = padded(channels, lanes);
  Buffer out(std::size_t(images) * wide * pixels);
  for (int n = 0; n < images; ++n) {
    for (int c = 0; c < channels; ++c) {
      for (int p = 0; p < pixels; ++p) {
        out.data()[((std::size_t(n) * (wide / lanes) + c / lanes) * pixels + p) * lanes + c % lanes] =
            static_cast<float>(planar[(std::size_t(n) * channels + c) * pixels + p]);
      }
    }
  }
  return out;
}

/// The way back.
inline Doubles to_planar(const Buffer& panels, int images, int channels, int pixels, int lanes) {
  const int wide = padded(channels, lanes);
  Doubles out(std::size_t(images) * channels * pixels);
  for (int n = 0; n < images; ++n) {
    for (int c = 0; c < channels; ++c) {
      for (int p = 0; p < pixels; ++p) {
        out[(std::size_t(n) * channels + c) * pixels + p] =
            panels.data()[((std::size_t(n) * (wide / lanes) + c / lanes) * pixels + p) * lanes + c % lanes];
      }
    }
  }
  return out;
}

/// || a - b || / || b ||.
template <class A>
double relative_error(const A& a, const Doubles& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

/// Signs of planar values as the kernels store them: one bit per element, in panel order.
inline std::vector<std::uint8_t> to_signs(const Doubles& planar, int images, int channels, int pixels,
                                          int lanes) {
  const Buffer panels = to_panels(planar, images, channels, pixels, lanes);
  std::vector<std::uint8_t> bits(panels.size() / 8);
  for (std::size_t i = 0; i < panels.size(); ++i) bits[i / 8] |= (panels.data()[i] > 0) << (i % 8);
  return bits;
}

}  // namespace ebclr::cpu::testing
