#include "core/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/clones.h"

namespace ebclr::core {

std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high),
                               static_cast<uint32_t>(counter_high >> 32)};
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

namespace {

// Blocks that fill_normal makes at a time: enough to keep wide registers busy, small enough for the stack.
constexpr int kBlocks = 64;

// The logarithm of (0, 1] to within 2e-7: mantissa moved to [sqrt(1/2), sqrt(2)), then a polynomial in
// m - 1 (coefficients of Cephes' logf). Free of branches and calls, hence vectorised.
inline float fast_log(float u) {
  const auto bits = std::bit_cast<int32_t>(u);
  const int32_t shifted = bits - 0x3F3504F3;  // sqrt(1/2)
  const auto e = static_cast<float>(shifted >> 23);
  const float m = std::bit_cast<float>((shifted & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float z = m * m;
  const float y = p * m * z + e * -2.12194440e-4f - 0.5f * z;
  return m + y + e * 0.693359375f;
}

// Box-Muller on two words without a library call. The angle is reduced to a quarter turn in integers, so
// the polynomials (Cephes' sinf and cosf) see at most pi/4.
inline void fast_normal_pair(uint32_t a, uint32_t b, float& x, float& y) {
  const float u = (static_cast<float>(static_cast<int32_t>(a >> 8)) + 1.0f) * 0x1p-24f;
  const float radius = std::sqrt(-2.0f * fast_log(u));
  const auto turn = static_cast<int32_t>(b >> 8);
  const int32_t quarter = (turn + (1 << 21)) >> 22;
  const float t = static_cast<float>(turn - (quarter << 22)) * (0x1p-24f * 2.0f * std::numbers::pi_v<float>);
  const float z = t * t;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * t + t;
  const float c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
                  0.5f * z + 1.0f;
  const auto sb = std::bit_cast<int32_t>(s), cb = std::bit_cast<int32_t>(c);
  const int32_t swap = -(quarter & 1);
  const int32_t cos_sign = static_cast<int32_t>(static_cast<uint32_t>((quarter + 1) & 2) << 30);
  const int32_t sin_sign = static_cast<int32_t>(static_cast<uint32_t>(quarter & 2) << 30);
  x = radius * std::bit_cast<float>(((swap & sb) | (~swap & cb)) ^ cos_sign);
  y = radius * std::bit_cast<float>(((swap & cb) | (~swap & sb)) ^ sin_sign);
}

// Normals of kBlocks Philox blocks from `block` on; out holds 4 * kBlocks.
EBCLR_CLONES void normal_blocks(uint64_t key, uint64_t block, float* __restrict out) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    c0[i] = static_cast<uint32_t>(block + i);
    c1[i] = static_cast<uint32_t>((block + i) >> 32);
    c2[i] = 1;
    c3[i] = 0;
  }
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const uint64_t p0 = uint64_t{kM0} * c0[i], p1 = uint64_t{kM1} * c2[i];
      const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c0[i] = n0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = n2;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += kW0;
    k1 += kW1;
  }
  float v0[kBlocks], v1[kBlocks], v2[kBlocks], v3[kBlocks];
  for (int i = 0; i < kBlocks; ++i) fast_normal_pair(c0[i], c1[i], v0[i], v1[i]);
  for (int i = 0; i < kBlocks; ++i) fast_normal_pair(c2[i], c3[i], v2[i], v3[i]);
  for (int i = 0; i < kBlocks; ++i) {
    out[4 * i] = v0[i];
    out[4 * i + 1] = v1[i];
    out[4 * i + 2] = v2[i];
    out[4 * i + 3] = v3[i];
  }
}

}  // namespace

void fill_normal(uint64_t key, uint64_t first, std::span<float> out) {
  // Four normals come from one Philox block; element i lives in block (first + i) / 4.
  const uint64_t end = first + out.size();
  constexpr uint64_t kSpan = 4 * kBlocks;
  for (uint64_t block = first / 4; block * 4 < end; block += kBlocks) {
    const uint64_t start = block * 4;
    if (start >= first && start + kSpan <= end) {
      normal_blocks(key, block, out.data() + (start - first));
      continue;
    }
    float part[kSpan];
    normal_blocks(key, block, part);
    const uint64_t from = std::max(first, start), to = std::min(end, start + kSpan);
    std::copy(part + (from - start), part + (to - start), out.data() + (from - first));
  }
}

}  // namespace ebclr::core
