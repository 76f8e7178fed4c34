#pragma once
// Winograd F(4,3) along the rows of an image, at the points 0, 3/4, -3/4, 3/2, -3/2, infinity.
//
// The split products of amx.h round more coarsely than float, and these points magnify that least: relative
// L2 error of a convolution 9e-6, against 1.4e-5 at 0, 1, -1, 2, -2 (and 4e-5 for F(4x4,3x3) in the plane,
// which is why the columns of the filter are summed as they are). Maps as in transforms.h.

namespace ebclr::cpu {
namespace {

struct RowPoints {
  static constexpr float kA = .75f, kB = 1.5f;
  static constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
  static constexpr float kSum = kA2 + kB2, kProduct = kA2 * kB2;
  // Divisors of the filter's values at 0, at +-a and at +-b.
  static constexpr float kAt0 = 1 / kProduct, kAtA = 1 / (2 * kA2 * (kA2 - kB2)),
                         kAtB = 1 / (2 * kB2 * (kB2 - kA2));
};

/// Six consecutive pixels -> six points.
template <class V>
[[gnu::always_inline]] inline void row_input(const typename V::Reg* d, typename V::Reg* o) {
  using P = RowPoints;
  const auto a2 = V::set1(P::kA2), b2 = V::set1(P::kB2), sum = V::set1(P::kSum),
             product = V::set1(P::kProduct);
  const auto even_a = V::fnma(b2, d[2], d[4]), odd_a = V::fnma(b2, d[1], d[3]);
  const auto even_b = V::fnma(a2, d[2], d[4]), odd_b = V::fnma(a2, d[1], d[3]);
  o[0] = V::fma(product, d[0], V::fnma(sum, d[2], d[4]));
  o[1] = V::fma(V::set1(P::kA), odd_a, even_a);
  o[2] = V::fnma(V::set1(P::kA), odd_a, even_a);
  o[3] = V::fma(V::set1(P::kB), odd_b, even_b);
  o[4] = V::fnma(V::set1(P::kB), odd_b, even_b);
  o[5] = V::fma(product, d[1], V::fnma(sum, d[3], d[5]));
}

/// Six sums -> four consecutive results.
template <class V>
[[gnu::always_inline]] inline void row_output(const typename V::Reg* m, typename V::Reg* o) {
  using P = RowPoints;
  const auto s1 = V::add(m[1], m[2]), e1 = V::sub(m[1], m[2]), s2 = V::add(m[3], m[4]),
             e2 = V::sub(m[3], m[4]);
  o[0] = V::add(m[0], V::add(s1, s2));
  o[1] = V::fma(V::set1(P::kB), e2, V::mul(V::set1(P::kA), e1));
  o[2] = V::fma(V::set1(P::kB2), s2, V::mul(V::set1(P::kA2), s1));
  o[3] = V::fma(V::set1(P::kB3), e2, V::fma(V::set1(P::kA3), e1, m[5]));
}

/// Three taps -> six points.
template <class V>
[[gnu::always_inline]] inline void row_filter(const typename V::Reg* w, typename V::Reg* o) {
  using P = RowPoints;
  const auto value = [&](float even0, float odd, float even2, typename V::Reg* plus, typename V::Reg* minus) {
    const auto even = V::fma(V::set1(even2), w[2], V::mul(V::set1(even0), w[0]));
    *plus = V::fma(V::set1(odd), w[1], even);
    *minus = V::fnma(V::set1(odd), w[1], even);
  };
  o[0] = V::mul(V::set1(P::kAt0), w[0]);
  value(P::kAtA, P::kAtA * P::kA, P::kAtA * P::kA2, o + 1, o + 2);
  value(P::kAtB, P::kAtB * P::kB, P::kAtB * P::kB2, o + 3, o + 4);
  o[5] = w[2];
}

/// Gradients of four consecutive results -> six points, for the weight gradient: transpose of row_output.
template <class V>
[[gnu::always_inline]] inline void row_output_grad(const typename V::Reg* g, typename V::Reg* o) {
  using P = RowPoints;
  const auto value = [&](float x, float x2, float x3, typename V::Reg* plus, typename V::Reg* minus) {
    const auto even = V::fma(V::set1(x2), g[2], g[0]);
    const auto odd = V::fma(V::set1(x3), g[3], V::mul(V::set1(x), g[1]));
    *plus = V::add(even, odd);
    *minus = V::sub(even, odd);
  };
  o[0] = g[0];
  value(P::kA, P::kA2, P::kA3, o + 1, o + 2);
  value(P::kB, P::kB2, P::kB3, o + 3, o + 4);
  o[5] = g[3];
}

/// Sums of gradients at six points -> those of three taps: transpose of row_filter.
template <class V>
[[gnu::always_inline]] inline void row_filter_grad(const typename V::Reg* u, typename V::Reg* o) {
  using P = RowPoints;
  const auto s1 = V::add(u[1], u[2]), e1 = V::sub(u[1], u[2]), s2 = V::add(u[3], u[4]),
             e2 = V::sub(u[3], u[4]);
  o[0] = V::fma(V::set1(P::kAt0), u[0], V::fma(V::set1(P::kAtA), s1, V::mul(V::set1(P::kAtB), s2)));
  o[1] = V::fma(V::set1(P::kAtA * P::kA), e1, V::mul(V::set1(P::kAtB * P::kB), e2));
  o[2] = V::fma(V::set1(P::kAtA * P::kA2), s1, V::fma(V::set1(P::kAtB * P::kB2), s2, u[5]));
}

}  // namespace
}  // namespace ebclr::cpu
