#pragma once
// Matrix products on the tile unit (AMX), as exact as the engine needs.
//
// The unit multiplies bfloat16, sixteen times as many per cycle as AVX-512 multiplies floats, and sums in
// float. A float is therefore split in two: high = its nearest bfloat16, low = the nearest bfloat16 of what
// is left, 16 to 17 bits in all, and
//   a * b  ~  high(a) high(b) + low(a) high(b) + high(a) low(b):
// three products where float has one, still five times the speed. What is left out is 2.4e-6 of the result,
// measured as relative L2 error of a long sum.
//
// Operands lie as the unit reads them: tiles of 16 rows of 64 bytes. A row of the left one holds 32 channels;
// a row of the right one holds, for each of 16 columns, the two neighbouring channels 2r and 2r + 1.

#include <immintrin.h>

#include <cstdint>

#include "cpu/simd_avx512.h"

namespace ebclr::cpu {
namespace {

inline constexpr int kPair = 32;          // channels of one step: two panels
inline constexpr long kRowBytes = 64;     // of a tile
inline constexpr long kTileBytes = 1024;  // 16 rows
inline constexpr long kStepBytes = 2048;  // right operand, one panel, one step: high, then low
inline constexpr int kTileRows = 16;

/// What the unit is told of its eight registers: 16 rows of 64 bytes each.
struct TileConfig {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// The unit, ready for use while this object lives.
class TileUnit {
 public:
  // A constant in memory: g++ takes the intrinsic to read 8 of its 64 bytes, and drops writes to the others.
  TileUnit() { _tile_loadconfig(&kConfig); }
  ~TileUnit() { _tile_release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

 private:
  alignas(64) static constexpr TileConfig kConfig{};
};

/// g++'s tile loads and stores do not say which memory they touch; between this and the next such line all
/// earlier writes are done, and nothing read before is taken to be still the same.
[[gnu::always_inline]] inline void memory_fence() {
  asm volatile("" ::: "memory");
}

/// The nearest value that bfloat16 has.
[[gnu::always_inline]] inline __m512 nearest_bf16(__m512 a) {
  const __m512i up = _mm512_add_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

/// A row of the left operand: channels of `a`, then of `b`; the low parts `low` bytes further on.
[[gnu::always_inline]] inline void store_left(__m512 a, __m512 b, char* row, long low) {
  const __m512 high_a = nearest_bf16(a), high_b = nearest_bf16(b);
  _mm512_store_si512(row, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high_b, high_a)));
  _mm512_store_si512(row + low, reinterpret_cast<__m512i>(
                                    _mm512_cvtne2ps_pbh(_mm512_sub_ps(b, high_b), _mm512_sub_ps(a, high_a))));
}

/// Two bfloat16 per word: `even` below, `odd` above. Both must be values of bfloat16.
[[gnu::always_inline]] inline __m512i interleave(__m512 even, __m512 odd) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(even), 16), _mm512_castps_si512(odd));
}

/// A row of the right operand: the channels 2r and 2r + 1 of 16 columns; the low parts `low` bytes further
/// on.
[[gnu::always_inline]] inline void store_right(__m512 even, __m512 odd, char* row, long low) {
  const __m512 high_even = nearest_bf16(even), high_odd = nearest_bf16(odd);
  _mm512_store_si512(row, interleave(high_even, high_odd));
  _mm512_store_si512(row + low, interleave(nearest_bf16(_mm512_sub_ps(even, high_even)),
                                           nearest_bf16(_mm512_sub_ps(odd, high_odd))));
}

/// The left operand of a product: rows of 64 bytes; each step, one tap of one pair of panels, begins
/// somewhere else.
struct Left {
  const char* data;
  long low;           // bytes from high to low
  const long* steps;  // bytes from `data` to each step's first row
  int step_count;
};

/// Lines of the next columns' weights that are prefetched six times a step: about what 192 rows of a product
/// need to fetch all of them. Evenly, because a line on its way from L3 occupies a buffer that tiles from L2
/// need too (8.8 ns per tile product where 16 lines in a row took 9.7, and none 9.3; 256 rows, 256 channels).
inline constexpr int kPrefetchLines = 2;

/// kRows x kCols tiles of a sum C in panels of 16 columns, in registers between begin and end.
template <int kRows, int kCols>
struct TileSum {
  [[gnu::always_inline]] static void begin(const float* c, long c_panel, bool add) {
    memory_fence();
    if (add) {
      _tile_loadd(0, c, kRowBytes);
      if constexpr (kCols == 2) _tile_loadd(1, c + c_panel, kRowBytes);
      if constexpr (kRows == 2) _tile_loadd(2, c + 256, kRowBytes);
      if constexpr (kRows == 2 && kCols == 2) _tile_loadd(3, c + c_panel + 256, kRowBytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
  }

  [[gnu::always_inline]] static void end(float* c, long c_panel) {
    _tile_stored(0, c, kRowBytes);
    if constexpr (kCols == 2) _tile_stored(1, c + c_panel, kRowBytes);
    if constexpr (kRows == 2) _tile_stored(2, c + 256, kRowBytes);
    if constexpr (kRows == 2 && kCols == 2) _tile_stored(3, c + c_panel + 256, kRowBytes);
    memory_fence();
  }

  /// Where the tiles of one step lie: the first one's rows `row` bytes apart, its low part and the second
  /// tile so many bytes further on.
  struct Operand {
    const char* at;
    long row, low, second;
  };

  /// Twelve products for eight loads: low * high, high * high, high * low. between() is called now and then.
  template <class Between>
  [[gnu::always_inline]] static void step(const Operand& a, const Operand& b, const Between& between) {
    load_right(b, 0);
    load_left(a, a.low);
    multiply(between);
    load_left(a, 0);
    multiply(between);
    load_right(b, b.low);
    multiply(between);
  }

 private:
  [[gnu::always_inline]] static void load_left(const Operand& a, long part) {
    _tile_loadd(4, a.at + part, a.row);
    if constexpr (kRows == 2) _tile_loadd(5, a.at + part + a.second, a.row);
  }
  [[gnu::always_inline]] static void load_right(const Operand& b, long part) {
    _tile_loadd(6, b.at + part, b.row);
    if constexpr (kCols == 2) _tile_loadd(7, b.at + part + b.second, b.row);
  }
  template <class Between>
  [[gnu::always_inline]] static void multiply(const Between& between) {
    _tile_dpbf16ps(0, 4, 6);
    between();
    if constexpr (kCols == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRows == 2) {
      between();
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kRows == 2 && kCols == 2) _tile_dpbf16ps(3, 5, 7);
  }
};

/// Adds up all steps of a product for kRows x kCols tiles.
template <int kRows, int kCols>
[[gnu::noinline]] void tile_sum(const Left& left, long row, const char* b, long b_panel, float* c,
                                long c_panel, bool add, const char* prefetch) {
  using Sum = TileSum<kRows, kCols>;
  Sum::begin(c, c_panel, add);
  for (int step = 0; step < left.step_count; ++step) {
    const char* a = left.data + left.steps[step] + row * kRowBytes;
    Sum::step({a, kRowBytes, left.low, kTileBytes}, {b, kRowBytes, kTileBytes, b_panel}, [&] {
    // Weights of the next columns come from L3 or memory: a line now and then keeps them arriving.
#pragma GCC unroll 2
      for (int line = 0; line < kPrefetchLines; ++line) _mm_prefetch(prefetch + line * 64, _MM_HINT_T1);
      prefetch += kPrefetchLines * 64;
    });
    b += kStepBytes;
  }
  Sum::end(c, c_panel);
}

/// C = left * right (+ C if add): `rows` rows, rounded up to whole tiles; `panels` panels of columns b_panel
/// bytes apart, of C c_panel floats apart. `following` is what the next product reads as b; it is prefetched
/// meanwhile. Operands in L2 are near enough: 6.2 ns per tile product with 1.2 MB there, 5.8 with none to
/// load.
inline void tile_product(const Left& left, long rows, const char* b, long b_panel, int panels, float* c,
                         long c_panel, bool add, const char* following) {
  const long fetch_step = long{left.step_count} * 6 * kPrefetchLines * 64;
  for (int n = 0; n < panels; n += 2) {
    const bool two = n + 1 < panels;
    const char* next = n + 2 < panels ? b + 2 * b_panel : following;
    long fetched = 0;
    for (long row = 0; row < rows; row += 2 * kTileRows) {
      const char* fetch = fetched < 2 * b_panel ? next + fetched : b;
      fetched += fetch_step;
      float* into = c + row * 16;
      if (rows - row > kTileRows) {
        if (two) {
          tile_sum<2, 2>(left, row, b, b_panel, into, c_panel, add, fetch);
        } else {
          tile_sum<2, 1>(left, row, b, b_panel, into, c_panel, add, fetch);
        }
      } else if (two) {
        tile_sum<1, 2>(left, row, b, b_panel, into, c_panel, add, fetch);
      } else {
        tile_sum<1, 1>(left, row, b, b_panel, into, c_panel, add, fetch);
      }
    }
    b += 2 * b_panel;
    c += 2 * c_panel;
  }
}

}  // namespace
}  // namespace ebclr::cpu
