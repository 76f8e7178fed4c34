#pragma once
// The checksum of checkpoints and indices.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/rng.h"

namespace ebclr::core {

/// A fast 64-bit checksum: four independent multiply-mix lanes over 32 bytes at a time, beginning at `seed`.
/// With `rest` the number of bytes beyond whole lanes counts too: checkpoints have it so, indices do not.
inline uint64_t lane_sum(const void* data, size_t n, uint64_t seed, bool rest) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint64_t lane[4] = {seed, seed + 1, seed + 2, seed + 3};
  for (; n >= 32; n -= 32, p += 32)
    for (int i = 0; i < 4; ++i) {
      uint64_t w;
      std::memcpy(&w, p + 8 * i, 8);
      lane[i] = (lane[i] ^ w) * 0x9E3779B97F4A7C15ull;
      lane[i] ^= lane[i] >> 29;
    }
  uint64_t h = rest ? make_key({lane[0], lane[1], lane[2], lane[3], n})
                    : make_key({lane[0], lane[1], lane[2], lane[3]});
  for (; n > 0; --n, ++p) h = mix64(h ^ *p);
  return h;
}

}  // namespace ebclr::core
