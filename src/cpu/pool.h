#pragma once
// Global average pooling and its gradient.

#include "cpu/team.h"

namespace ebclr::cpu {
namespace {

template <class V>
void pool(const float* x, int images, int channels, int real, int pixels, float* features, const Team& team) {
  constexpr int L = V::kLanes;
  const auto scale = V::set1(1.f / static_cast<float>(pixels));
  alignas(64) float lanes[L];
  for (long n = team.begin(images); n < team.end(images); ++n) {
    for (int p = 0; p < channels / L; ++p) {
      const float* from = x + (n * (channels / L) + p) * pixels * L;
      auto sum = V::zero();
      for (int i = 0; i < pixels; ++i) sum = V::add(sum, V::load(from + long{i} * L));
      V::store(lanes, V::mul(sum, scale));
      for (int l = 0; l < L && p * L + l < real; ++l) features[n * real + p * L + l] = lanes[l];
    }
  }
}

template <class V>
void pool_grad(const float* dfeatures, int images, int channels, int real, int pixels, const void* signs,
               float slope, float* dx, const Team& team) {
  constexpr int L = V::kLanes;
  const float scale = 1.f / static_cast<float>(pixels);
  const auto* bits = static_cast<const typename V::Bits*>(signs);
  alignas(64) float lanes[L];
  for (long n = team.begin(images); n < team.end(images); ++n) {
    for (int p = 0; p < channels / L; ++p) {
      for (int l = 0; l < L; ++l) lanes[l] = p * L + l < real ? dfeatures[n * real + p * L + l] * scale : 0.f;
      const auto on = V::load(lanes), off = V::mul(on, V::set1(slope));
      const long at = (n * (channels / L) + p) * pixels;
      for (int i = 0; i < pixels; ++i) {
        V::store(dx + (at + i) * L, bits != nullptr ? V::select(bits[at + i], on, off) : on);
      }
    }
  }
}

/// The way back through an activation alone.
template <class V>
void derive(const float* g, const void* signs, float slope, long vectors, float* y, const Team& team) {
  const auto* bits = static_cast<const typename V::Bits*>(signs);
  const auto one = V::set1(1), low = V::set1(slope);
  for (long i = team.begin(vectors); i < team.end(vectors); ++i) {
    V::store(y + i * V::kLanes, V::mul(V::load(g + i * V::kLanes), V::select(bits[i], one, low)));
  }
}

}  // namespace
}  // namespace ebclr::cpu
