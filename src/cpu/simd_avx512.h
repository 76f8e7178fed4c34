#pragma once
// Sixteen floats per vector: AVX-512 F/BW/DQ/VL. Included by kernels_avx512.cpp, and by
// kernels_amx.cpp through amx.h (see simd_avx2.h for why not elsewhere).

#include <immintrin.h>

#include <cstdint>

namespace ebclr::cpu {
namespace {

struct Avx512 {
  using Reg = __m512;
  using Bits = std::uint16_t;
  static constexpr int kLanes = 16;
  // 14x2 accumulators + 2 columns + 1 broadcast = 31 of 32 registers.
  static constexpr int kRows = 14, kVecs = 2;
  static constexpr int kGradRows = 8, kGradVecs = 3;
  // Points whose sums fit the registers for four tiles.
  static constexpr int kTapPoints = 6;
  // Words in which a product reads a panel's channels, see gemm.h.
  static constexpr int kWords = kLanes;

  static Reg load(const float* p) { return _mm512_load_ps(p); }
  static Reg loadu(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm512_store_ps(p, a); }
  static void storeu(float* p, Reg a) { _mm512_storeu_ps(p, a); }
  static Reg set1(float a) { return _mm512_set1_ps(a); }
  static Reg broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg dot(Reg a, Reg b, Reg c) { return fma(a, b, c); }
  static void store_words(float* p, Reg a) { store(p, a); }
  static Reg fnma(Reg a, Reg b, Reg c) { return _mm512_fnmadd_ps(a, b, c); }
  static Bits positive(Reg a) { return _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_GT_OQ); }
  static Bits equal(Reg a, Reg b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static Reg select(Bits bits, Reg a, Reg b) { return _mm512_mask_blend_ps(bits, b, a); }
};

}  // namespace
}  // namespace ebclr::cpu
