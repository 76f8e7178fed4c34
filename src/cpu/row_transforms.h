#pragma once
// Winograd F(4,3) along the rows of an image, at the points 0, 3/4, -3/4, 3/2, -3/2, infinity.
//
// The split products of amx.h round more coarsely than float, and these points magnify that least: relative
// L2 error of a convolution 9e-6, against 1.4e-5 at 0, 1, -1, 2, -2 (and 4e-5 for F(4x4,3x3) in the plane,
// which is why the columns of the filter are summed as they are). Maps as in transforms.h.

#include "cpu/points.h"

namespace ebclr::cpu {
namespace {

struct RowNodes {
  static constexpr float kA = .75f, kB = 1.5f;
};
using RowPoints = PointMaps<RowNodes>;

/// Six consecutive pixels -> six points.
template <class V>
[[gnu::always_inline]] inline void row_input(const typename V::Reg* d, typename V::Reg* o) {
  PointInput<RowPoints>::apply<V>(d, 1, o, 1);
}

/// Six sums -> four consecutive results.
template <class V>
[[gnu::always_inline]] inline void row_output(const typename V::Reg* m, typename V::Reg* o) {
  PointOutput<RowPoints>::apply<V>(m, 1, o, 1);
}

/// Three taps -> six points.
template <class V>
[[gnu::always_inline]] inline void row_filter(const typename V::Reg* w, typename V::Reg* o) {
  PointFilter<RowPoints>::apply<V>(w, 1, o, 1);
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
