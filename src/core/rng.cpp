#include "core/rng.h"

#include <cmath>
#include <numbers>

namespace ebclr::core {

std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kM0} * c[0], p1 = uint64_t{kM1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += kW0;
    k1 += kW1;
  }
  return c;
}

Rng::Rng(uint64_t seed, Stream stream, std::initializer_list<uint64_t> parts) {
  uint64_t h = make_key({seed, static_cast<uint64_t>(stream)});
  for (uint64_t p : parts) h = make_key({h, p});
  key_ = h;
}

uint32_t Rng::next_u32() {
  const uint64_t index = counter_ / 4;
  if (index != block_index_) {
    block_ = philox4x32(key_, index);
    block_index_ = index;
  }
  return block_[counter_++ % 4];
}

uint64_t Rng::below(uint64_t bound) {
  const uint64_t limit = ~uint64_t{0} - (~uint64_t{0} % bound + 1) % bound;  // largest accepted value
  uint64_t x = next_u64();
  while (x > limit) x = next_u64();
  return x % bound;
}

namespace {

// Box-Muller on two words; u is in (0, 1] so that the logarithm is finite.
inline void normal_pair(uint32_t a, uint32_t b, float& x, float& y) {
  const float u = (static_cast<float>(a >> 8) + 1.0f) * 0x1p-24f;
  const float angle = static_cast<float>(b >> 8) * (0x1p-24f * 2.0f * std::numbers::pi_v<float>);
  const float radius = std::sqrt(-2.0f * std::log(u));
  x = radius * std::cos(angle);
  y = radius * std::sin(angle);
}

}  // namespace

float Rng::normal() {
  float x, y;
  const uint32_t a = next_u32(), b = next_u32();
  normal_pair(a, b, x, y);
  return x;
}

void fill_normal(uint64_t key, uint64_t first, std::span<float> out) {
  // Blocks of four normals from one Philox block; element i lives in block (first + i) / 4.
  const uint64_t end = first + out.size();
  for (uint64_t block = first / 4; block * 4 < end; ++block) {
    const auto w = philox4x32(key, block, 1);
    float v[4];
    normal_pair(w[0], w[1], v[0], v[1]);
    normal_pair(w[2], w[3], v[2], v[3]);
    for (int j = 0; j < 4; ++j) {
      const uint64_t i = block * 4 + j;
      if (i >= first && i < end) out[i - first] = v[j];
    }
  }
}

}  // namespace ebclr::core
