#pragma once
// Maps of Winograd's F(4,3) at the points 0, +-a, +-b and infinity, for whoever wants other points than the
// 0, +-1, +-2 of transforms.h, which has the rules for them: `s` and `t` are the distances between inputs and
// between outputs.

namespace ebclr::cpu {
namespace {

/// What the maps need of a and b, which `Pair` names kA and kB.
template <class Pair>
struct PointMaps : Pair {
  using Pair::kA, Pair::kB;
  static constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
  static constexpr float kSum = kA2 + kB2, kProduct = kA2 * kB2;
  // Divisors of the filter's values at 0, at +-a and at +-b.
  static constexpr float kAt0 = 1 / kProduct, kAtA = 1 / (2 * kA2 * (kA2 - kB2)),
                         kAtB = 1 / (2 * kB2 * (kB2 - kA2));
};

/// Six consecutive pixels -> six points.
template <class P>
struct PointInput {
  static constexpr int kIn = 6, kOut = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* d, int s, typename V::Reg* o, int t) {
    const auto a = V::set1(P::kA), b = V::set1(P::kB), a2 = V::set1(P::kA2), b2 = V::set1(P::kB2),
               sum = V::set1(P::kSum), product = V::set1(P::kProduct);
    const auto even_a = V::fnma(b2, d[2 * s], d[4 * s]), odd_a = V::fnma(b2, d[1 * s], d[3 * s]);
    const auto even_b = V::fnma(a2, d[2 * s], d[4 * s]), odd_b = V::fnma(a2, d[1 * s], d[3 * s]);
    o[0 * t] = V::fma(product, d[0 * s], V::fnma(sum, d[2 * s], d[4 * s]));
    o[1 * t] = V::fma(a, odd_a, even_a);
    o[2 * t] = V::fnma(a, odd_a, even_a);
    o[3 * t] = V::fma(b, odd_b, even_b);
    o[4 * t] = V::fnma(b, odd_b, even_b);
    o[5 * t] = V::fma(product, d[1 * s], V::fnma(sum, d[3 * s], d[5 * s]));
  }
};

/// Six sums -> four consecutive results.
template <class P>
struct PointOutput {
  static constexpr int kIn = 6, kOut = 4;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* m, int s, typename V::Reg* o, int t) {
    const auto s1 = V::add(m[1 * s], m[2 * s]), e1 = V::sub(m[1 * s], m[2 * s]);
    const auto s2 = V::add(m[3 * s], m[4 * s]), e2 = V::sub(m[3 * s], m[4 * s]);
    o[0 * t] = V::add(m[0 * s], V::add(s1, s2));
    o[1 * t] = V::fma(V::set1(P::kB), e2, V::mul(V::set1(P::kA), e1));
    o[2 * t] = V::fma(V::set1(P::kB2), s2, V::mul(V::set1(P::kA2), s1));
    o[3 * t] = V::fma(V::set1(P::kB3), e2, V::fma(V::set1(P::kA3), e1, m[5 * s]));
  }
};

/// Three taps -> six points.
template <class P>
struct PointFilter {
  static constexpr int kIn = 3, kOut = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const typename V::Reg* w, int s, typename V::Reg* o, int t) {
    const auto values = [&](float even0, float odd, float even2, typename V::Reg* plus,
                            typename V::Reg* minus) {
      const auto even = V::fma(V::set1(even2), w[2 * s], V::mul(V::set1(even0), w[0 * s]));
      *plus = V::fma(V::set1(odd), w[1 * s], even);
      *minus = V::fnma(V::set1(odd), w[1 * s], even);
    };
    o[0 * t] = V::mul(V::set1(P::kAt0), w[0 * s]);
    values(P::kAtA, P::kAtA * P::kA, P::kAtA * P::kA2, o + 1 * t, o + 2 * t);
    values(P::kAtB, P::kAtB * P::kB, P::kAtB * P::kB2, o + 3 * t, o + 4 * t);
    o[5 * t] = w[2 * s];
  }
};

}  // namespace
}  // namespace ebclr::cpu
