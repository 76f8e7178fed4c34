#pragma once
// The two matrix products that everything else reduces to.
//
// Every matrix of R rows and C columns is stored in panels of kLanes columns: [C/kLanes][R][kLanes]. A row of
// a panel is one vector, so that transforms write whole vectors, and both the broadcast operand and the
// vector operand are walked from one base pointer with constant offsets, whatever R and C are.
//
// A and B of the first product may hold words of several channels instead of floats (bf16.h: pairs). A row of
// A then has kWords words for its kLanes channels, B a row per word, and `dot` multiplies and sums what is in
// them.

#include <utility>

namespace ebclr::cpu {
namespace {

/// One register tile of C = A * B (+ C if kAdd): kRows rows, kVecs vectors, k_panels * kWords products each.
template <class V, int kRows, int kVecs, bool kAdd>
[[gnu::noinline]] void tile_product(const float* a, long a_panel, const float* b, long b_panel, int k_panels,
                                    float* c, long c_panel, const float* prefetch,
                                    const float* prefetch_too) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes, W = V::kWords;
  Reg sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[i][v] = kAdd ? V::load(c + v * c_panel + i * L) : V::zero();
  }
  for (int panel = 0; panel < k_panels; ++panel) {
#pragma GCC unroll 4
    for (int k = 0; k < W; ++k) {
      // The weights of the next product come from L3 or memory: lines at every step keep them arriving.
      __builtin_prefetch(prefetch + k * 16, 0, 2);
      __builtin_prefetch(prefetch_too + k * 16, 0, 2);
      Reg column[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) column[v] = V::load(b + v * b_panel + k * L);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Reg x = V::broadcast(a + i * W + k);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) sum[i][v] = V::dot(x, column[v], sum[i][v]);
      }
    }
    a += a_panel;
    b += W * L;
    prefetch += W * 16;
    prefetch_too += W * 16;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) V::store(c + v * c_panel + i * L, sum[i][v]);
  }
}

using TileProduct = void (*)(const float*, long, const float*, long, int, float*, long, const float*,
                             const float*);

/// Register tiles of 1, 2, ... V::kRows rows.
template <class V, int kVecs, bool kAdd, class = std::make_integer_sequence<int, V::kRows>>
struct TileProducts;
template <class V, int kVecs, bool kAdd, int... kI>
struct TileProducts<V, kVecs, kAdd, std::integer_sequence<int, kI...>> {
  static constexpr TileProduct of[] = {tile_product<V, kI + 1, kVecs, kAdd>...};
};

/// C = A * B (+ C): A has `rows` rows in k_panels panels a_panel floats apart, B n_panels panels of
/// k_panels * kWords rows, C n_panels panels c_panel floats apart. `next` is what the following product reads
/// as B; it is prefetched meanwhile.
template <class V, bool kAdd>
void product(const float* a, long a_panel, int rows, const float* b, int k_panels, int n_panels, float* c,
             long c_panel, const float* next) {
  constexpr int L = V::kLanes, W = V::kWords;
  const long b_panel = long{k_panels} * W * L;
  // Equal row blocks: 64 rows are 13+13+13+13+12 rather than 14+14+14+14+8.
  const int blocks = (rows + V::kRows - 1) / V::kRows;
  for (int n = 0; n < n_panels; n += V::kVecs) {
    const int vecs = n_panels - n < V::kVecs ? n_panels - n : V::kVecs;
    const TileProduct* tiles = vecs == 1 ? TileProducts<V, 1, kAdd>::of : TileProducts<V, V::kVecs, kAdd>::of;
    const float* following = n + V::kVecs < n_panels ? b + V::kVecs * b_panel : next;
    const long lines = V::kVecs * b_panel / 16;
    int row = 0;
    for (int block = 0; block < blocks; ++block) {
      const int end = static_cast<int>(long{rows} * (block + 1) / blocks);
      const auto fetch = [&](long line) { return line < lines ? following + line * 16 : b; };
      const long step = long{k_panels} * W;  // lines that one pointer fetches in a register tile
      tiles[end - row - 1](a + row * W, a_panel, b, b_panel, k_panels, c + row * L, c_panel,
                           fetch(2 * block * step), fetch((2 * block + 1) * step));
      row = end;
    }
    b += V::kVecs * b_panel;
    c += V::kVecs * c_panel;
  }
}

/// The same for plain matrices, one after the other in memory.
template <class V>
void multiply(const float* a, int rows, const float* b, int k_panels, int n_panels, float* c) {
  const long panel = long{rows} * V::kLanes;
  product<V, false>(a, panel, rows, b, k_panels, n_panels, c, panel, b);
}

/// One register tile of C = A^T * B (+ C if add): kRows columns of A against kVecs vectors of B over `rows`.
template <class V, int kVecs>
[[gnu::noinline]] void tile_gradient(const float* a, const float* b, long b_panel, int rows, float* c,
                                     long c_panel, bool add) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes;
  constexpr int kRows = V::kGradRows;
  Reg sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[i][v] = add ? V::load(c + v * c_panel + i * L) : V::zero();
  }
#pragma GCC unroll 4
  for (int t = 0; t < rows; ++t) {
    Reg column[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) column[v] = V::load(b + v * b_panel + t * L);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Reg x = V::broadcast(a + t * L + i);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[i][v] = V::fma(x, column[v], sum[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) V::store(c + v * c_panel + i * L, sum[i][v]);
  }
}

/// C = A^T * B (+ C if add): A is rows x m_panels panels, B rows x n_panels panels, C has n_panels panels of
/// m_panels * kLanes rows (the layout of transformed weights).
template <class V>
void gradient_product(const float* a, long a_panel, int m_panels, const float* b, long b_panel, int n_panels,
                      int rows, float* c, bool add) {
  constexpr int L = V::kLanes;
  constexpr int kBlock = 128;  // rows at a time: the vectors of B (3 panels * 8 KB) stay in L1
  const long c_panel = long{m_panels} * L * L;
  for (int t = 0; t < rows; t += kBlock) {
    const int count = rows - t < kBlock ? rows - t : kBlock;
    const bool accumulate = add || t > 0;
    const int groups = (n_panels + V::kGradVecs - 1) / V::kGradVecs;
    for (int group = 0, n = 0; group < groups; ++group) {
      const int end = n_panels * (group + 1) / groups;
      for (int m = 0; m < m_panels * L; m += V::kGradRows) {
        const float* from = a + (m / L) * a_panel + long{t} * L + m % L;
        const float* with = b + n * b_panel + long{t} * L;
        float* into = c + n * c_panel + long{m} * L;
        switch (end - n) {
          case 1:
            tile_gradient<V, 1>(from, with, b_panel, count, into, c_panel, accumulate);
            break;
          case 2:
            tile_gradient<V, 2>(from, with, b_panel, count, into, c_panel, accumulate);
            break;
          default:
            tile_gradient<V, 3>(from, with, b_panel, count, into, c_panel, accumulate);
            break;
        }
      }
      n = end;
    }
  }
}

}  // namespace
}  // namespace ebclr::cpu
