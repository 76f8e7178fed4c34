#pragma once
// Convolutions for chains whose transformed images and weights are bfloat16, one number each, two channels to
// a word; sums are float. vdpbf16ps multiplies and adds twice as many as an instruction of floats, and
// everything that is read is half as large.
//
// bfloat16 has 8 bits, and Winograd magnifies what is missing. Relative L2 error of a convolution of normal
// numbers: 2.7e-2 for F(4x4,3x3) at the points 0, 1, -1, 2, -2, infinity of transforms.h, 1.1e-2 at those
// chosen here (direct products 2.3e-3; F(4,3) along rows only 5.0e-3, but with twice the products, which is
// all that is gained).

#include "cpu/points.h"
#include "cpu/simd_avx512.h"
#include "cpu/weights.h"

namespace ebclr::cpu {
namespace {

/// AVX-512, where a word of a product is a pair of bfloat16.
struct Avx512Bf16 : Avx512 {
  static constexpr int kWords = kLanes / 2;
  static Reg dot(Reg a, Reg b, Reg c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static __m256i rounded(Reg a) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)); }
  static void store_words(float* p, Reg a) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), rounded(a)); }
  /// A row of weights: the words of two channels.
  static Reg words(Reg first, Reg second) {
    const __m512i low = _mm512_cvtepu16_epi32(rounded(first)), high = _mm512_cvtepu16_epi32(rounded(second));
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
};

struct CoarseNodes {
  static constexpr float kA = .625f, kB = 1.5f;
};
using CoarseInput = PointInput<PointMaps<CoarseNodes>>;
using CoarseOutput = PointOutput<PointMaps<CoarseNodes>>;
using CoarseFilter = PointFilter<PointMaps<CoarseNodes>>;

/// Floats (words) of the weights; padded channels, a multiple of 16.
inline std::size_t bf16_weight_floats(int in, int out, int kernel, bool gradient) {
  return winograd_weight_floats(gradient ? out / 2 : in / 2, gradient ? in : out, kernel, gradient);
}

/// Plain weights to 36 matrices of words in panels. Threads share the panels.
template <class Filter>
void bf16_transform(const WeightJob& job, const Team& team) {
  using V = Avx512Bf16;
  constexpr int L = V::kLanes;
  const int words = (job.transpose ? job.out_padded : job.in_padded) / 2;
  const int n_count = job.transpose ? job.in_padded : job.out_padded;
  const long matrix = weight_matrix(words, n_count), items = long{words} * n_count / L;
  alignas(64) float taps[9 * L], first[36 * L];
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / words), k = 2 * static_cast<int>(item % words);
    const auto load = [&](int y, int x) { return V::load(taps + (y * 3 + x) * L); };
    gather_taps<V>(job, panel, k, taps);
    separable<V, Filter>(load, [&](int y, const V::Reg* row) {
#pragma GCC unroll 6
      for (int x = 0; x < 6; ++x) V::store(first + (y * 6 + x) * L, row[x]);
    });
    gather_taps<V>(job, panel, k + 1, taps);
    separable<V, Filter>(load, [&](int y, const V::Reg* row) {
#pragma GCC unroll 6
      for (int x = 0; x < 6; ++x) {
        V::store(job.u + item * L + (y * 6 + x) * matrix, V::words(V::load(first + (y * 6 + x) * L), row[x]));
      }
    });
  }
}

inline void bf16_weights(const WeightJob& job, const Team& team) {
  job.stride == 1 ? bf16_transform<CoarseFilter>(job, team) : bf16_transform<PolyFilter>(job, team);
}

/// The shortcut's [out][in], or its transpose, as the products read it.
inline void bf16_pack(const float* w, int out, int in, int out_padded, int in_padded, bool transpose,
                      const float* scale, float* packed) {
  using V = Avx512Bf16;
  constexpr int L = V::kLanes;
  const int words = (transpose ? out_padded : in_padded) / 2;
  const int panels = (transpose ? in_padded : out_padded) / L;
  alignas(64) float rows[2 * L];
  for (int panel = 0; panel < panels; ++panel) {
    for (int word = 0; word < words; ++word) {
      for (int i = 0; i < 2 * L; ++i) {
        const int k = 2 * word + i / L, n = panel * L + i % L, o = transpose ? k : n, c = transpose ? n : k;
        rows[i] = o < out && c < in ? w[long{o} * in + c] * (scale != nullptr ? scale[o] : 1.f) : 0.f;
      }
      V::store(packed + (long{panel} * words + word) * L, V::words(V::load(rows), V::load(rows + L)));
    }
  }
}

/// As winograd_cut, for weights of half the size.
inline Schedule bf16_cut(const Layer& layer, std::size_t l2_bytes) {
  return winograd_cut<Avx512>(layer, 2 * l2_bytes);
}

}  // namespace
}  // namespace ebclr::cpu
