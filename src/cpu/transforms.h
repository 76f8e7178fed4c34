#pragma once
// One-dimensional transforms of the two fast convolutions, and the step to two dimensions.
//
// F43: Winograd F(4,3) at the points 0, 1, -1, 2, -2, infinity: 6 products for 4 outputs of a 3-tap filter.
// Poly: a 3-tap filter of stride 2 is a 1-tap filter on the even inputs plus a 2-tap filter (taps w0, w2) on
//   the odd ones. The first needs 4 products for 4 outputs, the second F(4,2) at 0, 1, -1, 2, infinity needs
//   5: 9 in all, 81 in two dimensions where the direct way takes 144.
//
// Each map is a struct with kIn inputs and kOut outputs; `apply` reads in[i * in_step] and writes
// out[o * out_step]. All are linear, so the map of a gradient is the transpose of the forward map.

namespace ebclr::cpu {
namespace {

/// Input of F(4,3): B^T d.
struct F43Input {
  static constexpr int kIn = 6, kOut = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* d, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg two = V::set1(2), four = V::set1(4), five = V::set1(5);
    const Reg a = V::fnma(four, d[2 * s], d[4 * s]), b = V::fnma(four, d[1 * s], d[3 * s]);
    const Reg c = V::sub(d[4 * s], d[2 * s]), e = V::sub(d[3 * s], d[1 * s]);
    o[0 * t] = V::fma(four, d[0 * s], V::fnma(five, d[2 * s], d[4 * s]));
    o[1 * t] = V::add(a, b);
    o[2 * t] = V::sub(a, b);
    o[3 * t] = V::fma(two, e, c);
    o[4 * t] = V::fnma(two, e, c);
    o[5 * t] = V::fma(four, d[1 * s], V::fnma(five, d[3 * s], d[5 * s]));
  }
};

/// Output of F(4,3): A^T m.
struct F43Output {
  static constexpr int kIn = 6, kOut = 4;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* m, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg s1 = V::add(m[1 * s], m[2 * s]), e1 = V::sub(m[1 * s], m[2 * s]);
    const Reg s2 = V::add(m[3 * s], m[4 * s]), e2 = V::sub(m[3 * s], m[4 * s]);
    o[0 * t] = V::add(m[0 * s], V::add(s1, s2));
    o[1 * t] = V::fma(V::set1(2), e2, e1);
    o[2 * t] = V::fma(V::set1(4), s2, s1);
    o[3 * t] = V::add(m[5 * s], V::fma(V::set1(8), e2, e1));
  }
};

/// Output gradient of F(4,3) for the weight gradient: A g.
struct F43OutputGrad {
  static constexpr int kIn = 4, kOut = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* g, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg p = V::add(g[0 * s], g[2 * s]), q = V::add(g[1 * s], g[3 * s]);
    const Reg r = V::fma(V::set1(4), g[2 * s], g[0 * s]);
    const Reg u = V::fma(V::set1(8), g[3 * s], V::add(g[1 * s], g[1 * s]));
    o[0 * t] = g[0 * s];
    o[1 * t] = V::add(p, q);
    o[2 * t] = V::sub(p, q);
    o[3 * t] = V::add(r, u);
    o[4 * t] = V::sub(r, u);
    o[5 * t] = g[3 * s];
  }
};

/// Filter of F(4,3): G w. Fused multiply-adds are spelled out: weights that are made on the way
/// (multiply_taps) must have the bits of those made beforehand, whatever the compiler would have contracted.
struct F43Filter {
  static constexpr int kIn = 3, kOut = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* w, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg sixth = V::set1(1.f / 6), minus = V::set1(-1.f / 6), twelfth = V::set1(1.f / 12);
    const Reg a = V::add(w[0 * s], w[2 * s]);
    const Reg c = V::fma(V::set1(1.f / 24), w[0 * s], V::mul(sixth, w[2 * s]));
    o[0 * t] = V::mul(V::set1(.25f), w[0 * s]);
    o[1 * t] = V::fma(minus, a, V::mul(minus, w[1 * s]));
    o[2 * t] = V::fma(minus, a, V::mul(sixth, w[1 * s]));
    o[3 * t] = V::fma(twelfth, w[1 * s], c);
    o[4 * t] = V::fnma(twelfth, w[1 * s], c);
    o[5 * t] = w[2 * s];
  }
};

/// Filter gradient of F(4,3): G^T u.
struct F43FilterGrad {
  static constexpr int kIn = 6, kOut = 3;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* u, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg sixth = V::set1(1.f / 6), s1 = V::add(u[1 * s], u[2 * s]), e1 = V::sub(u[2 * s], u[1 * s]);
    const Reg s2 = V::add(u[3 * s], u[4 * s]), e2 = V::sub(u[3 * s], u[4 * s]);
    o[0 * t] = V::fma(V::set1(.25f), u[0 * s], V::fnma(sixth, s1, V::mul(V::set1(1.f / 24), s2)));
    o[1 * t] = V::fma(sixth, e1, V::mul(V::set1(1.f / 12), e2));
    o[2 * t] = V::add(u[5 * s], V::mul(sixth, V::sub(s2, s1)));
  }
};

/// Input of F(4,2): 5 consecutive values.
struct F42Input {
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* d, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg two = V::set1(2);
    const Reg a = V::sub(d[3 * s], d[1 * s]), b = V::sub(d[3 * s], d[2 * s]);
    o[0 * t] = V::fma(two, V::sub(d[0 * s], d[2 * s]), a);
    o[1 * t] = V::fnma(two, d[1 * s], b);
    o[2 * t] = V::fma(two, V::sub(d[1 * s], d[2 * s]), b);
    o[3 * t] = a;
    o[4 * t] = V::fnma(two, a, V::sub(d[4 * s], d[2 * s]));
  }
};

/// Output of F(4,2).
struct F42Output {
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* m, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg a = V::add(m[1 * s], m[2 * s]), b = V::sub(m[1 * s], m[2 * s]), c = m[3 * s];
    o[0 * t] = V::add(m[0 * s], V::add(a, c));
    o[1 * t] = V::fma(V::set1(2), c, b);
    o[2 * t] = V::fma(V::set1(4), c, a);
    o[3 * t] = V::add(m[4 * s], V::fma(V::set1(8), c, b));
  }
};

/// Stride 2, forward input: 9 consecutive values, the first odd -> 4 even ones, 5 of the odd phase.
struct PolyInput {
  static constexpr int kIn = 9, kOut = 9;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* d, int s, typename V::Reg* o, int t) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) o[i * t] = d[(2 * i + 1) * s];
    F42Input::apply<V>(d, 2 * s, o + 4 * t, t);
  }
};

/// Stride 2, forward output: the two phases add up to 4 outputs.
struct PolyOutput {
  static constexpr int kIn = 9, kOut = 4;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* m, int s, typename V::Reg* o, int t) {
    typename V::Reg odd[4];
    F42Output::apply<V>(m + 4 * s, s, odd, 1);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) o[i * t] = V::add(m[i * s], odd[i]);
  }
};

/// Stride 2, data gradient input: 5 consecutive output gradients; the even inputs see the first 4 as they
/// are.
struct PolyGradInput {
  static constexpr int kIn = 5, kOut = 9;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* g, int s, typename V::Reg* o, int t) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) o[i * t] = g[i * s];
    F42Input::apply<V>(g, s, o + 4 * t, t);
  }
};

/// Stride 2, data gradient output: 8 consecutive input gradients, even and odd interleaved.
struct PolyGradOutput {
  static constexpr int kIn = 9, kOut = 8;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* m, int s, typename V::Reg* o, int t) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) o[2 * i * t] = m[i * s];
    F42Output::apply<V>(m + 4 * s, s, o + t, 2 * t);
  }
};

/// Stride 2, output gradient for the weight gradient: transpose of PolyOutput.
struct PolyOutputGrad {
  static constexpr int kIn = 4, kOut = 9;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* g, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg p = V::add(g[0 * s], g[2 * s]), q = V::add(g[1 * s], g[3 * s]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) o[i * t] = g[i * s];
    o[4 * t] = g[0 * s];
    o[5 * t] = V::add(p, q);
    o[6 * t] = V::sub(p, q);
    o[7 * t] =
        V::fma(V::set1(8), g[3 * s], V::fma(V::set1(4), g[2 * s], V::fma(V::set1(2), g[1 * s], g[0 * s])));
    o[8 * t] = g[3 * s];
  }
};

/// Stride 2, filter (w0, w1, w2): the even phase's single tap, then F(4,2) of (w0, w2).
struct PolyFilter {
  static constexpr int kIn = 3, kOut = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* w, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg a = w[0 * s], c = w[2 * s], sixth = V::set1(1.f / 6);
    o[0 * t] = w[1 * s];
    o[1 * t] = V::mul(V::set1(.5f), a);
    o[2 * t] = V::mul(V::set1(-.5f), V::add(a, c));
    o[3 * t] = V::mul(sixth, V::sub(c, a));
    o[4 * t] = V::mul(sixth, V::fma(V::set1(2), c, a));
    o[5 * t] = c;
  }
};

/// Stride 2, filter gradient: transpose of PolyFilter.
struct PolyFilterGrad {
  static constexpr int kIn = 6, kOut = 3;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* u, int s, typename V::Reg* o, int t) {
    using Reg = typename V::Reg;
    const Reg half = V::set1(.5f), sixth = V::set1(1.f / 6);
    o[0 * t] = V::fma(half, V::sub(u[1 * s], u[2 * s]), V::mul(sixth, V::sub(u[4 * s], u[3 * s])));
    o[1 * t] = u[0 * s];
    o[2 * t] = V::fma(sixth, V::fma(V::set1(2), u[4 * s], u[3 * s]), V::fnma(half, u[2 * s], u[5 * s]));
  }
};

/// Applies `Map` to the columns, then to the rows, of a kIn x kIn patch: load(y, x) gives a value of the
/// patch, store(y, row) takes a whole row of kOut results.
template <class V, class Map, class Load, class Store>
[[gnu::always_inline]] inline void separable(const Load& load, const Store& store) {
  using Reg = typename V::Reg;
  Reg half[Map::kOut * Map::kIn];  // columns done; more than the registers hold, the rest lives in L1
#pragma GCC unroll 9
  for (int x = 0; x < Map::kIn; ++x) {
    Reg column[Map::kIn];
#pragma GCC unroll 9
    for (int y = 0; y < Map::kIn; ++y) column[y] = load(y, x);
    Map::template apply<V>(column, 1, half + x, Map::kIn);
  }
#pragma GCC unroll 9
  for (int y = 0; y < Map::kOut; ++y) {
    Reg row[Map::kOut];
    Map::template apply<V>(half + y * Map::kIn, 1, row, 1);
    store(y, row);
  }
}

}  // namespace
}  // namespace ebclr::cpu
