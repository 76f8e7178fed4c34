#pragma once
// Eight floats per vector: AVX2 with FMA. Included by kernels_avx2.cpp only, which is compiled for that
// target; the anonymous namespace keeps every template instantiated over the type out of other binaries.

#include <immintrin.h>

#include <cstdint>

namespace ebclr::cpu {
namespace {

struct Avx2 {
  using Reg = __m256;
  using Bits = std::uint8_t;  // one sign bit per lane, as stored in masks
  static constexpr int kLanes = 8;
  // Register tiles: 6x2 accumulators + 2 columns + 1 broadcast = 15 of 16 registers; the transposed product
  // needs a row count that divides the vector, hence 4x3.
  static constexpr int kRows = 6, kVecs = 2;
  static constexpr int kGradRows = 4, kGradVecs = 3;
  // Points whose sums fit the registers for four tiles.
  static constexpr int kTapPoints = 2;
  // Words in which a product reads a panel's channels, see gemm.h.
  static constexpr int kWords = kLanes;

  static Reg load(const float* p) { return _mm256_load_ps(p); }
  static Reg loadu(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Reg a) { _mm256_store_ps(p, a); }
  static void storeu(float* p, Reg a) { _mm256_storeu_ps(p, a); }
  static Reg set1(float a) { return _mm256_set1_ps(a); }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }  // a*b + c
  static Reg dot(Reg a, Reg b, Reg c) { return fma(a, b, c); }
  static void store_words(float* p, Reg a) { store(p, a); }
  static Reg fnma(Reg a, Reg b, Reg c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a*b

  /// One bit per lane: a > 0.
  static Bits positive(Reg a) {
    return static_cast<Bits>(_mm256_movemask_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_GT_OQ)));
  }
  /// One bit per lane: a == b.
  static Bits equal(Reg a, Reg b) {
    return static_cast<Bits>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
  }
  /// Per lane: a where the bit is set, else b.
  static Reg select(Bits bits, Reg a, Reg b) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), lane), lane);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(set));
  }
};

}  // namespace
}  // namespace ebclr::cpu
