// Alone in its file: g++ 12 dies on clones beside torch's headers.

#include <cstddef>

#include "core/clones.h"

namespace ebclr::index {
namespace {

using Lane = float __attribute__((vector_size(64), aligned(4), may_alias));

}  // namespace

EBCLR_CLONES float inner_product(const float* a, const float* b, size_t n) {
  // Four accumulators hide the latency of the multiply-add.
  Lane s0{}, s1{}, s2{}, s3{};
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    s0 += *reinterpret_cast<const Lane*>(a + i) * *reinterpret_cast<const Lane*>(b + i);
    s1 += *reinterpret_cast<const Lane*>(a + i + 16) * *reinterpret_cast<const Lane*>(b + i + 16);
    s2 += *reinterpret_cast<const Lane*>(a + i + 32) * *reinterpret_cast<const Lane*>(b + i + 32);
    s3 += *reinterpret_cast<const Lane*>(a + i + 48) * *reinterpret_cast<const Lane*>(b + i + 48);
  }
  for (; i + 16 <= n; i += 16)
    s0 += *reinterpret_cast<const Lane*>(a + i) * *reinterpret_cast<const Lane*>(b + i);
  s0 = (s0 + s1) + (s2 + s3);
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += s0[k];
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace ebclr::index
