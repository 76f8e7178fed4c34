#pragma once
// Weights on their way in (transformed once per optimizer step) and their gradients on the way out.

#include "cpu/winograd.h"

namespace ebclr::cpu {
namespace {

/// Plain weights [out][in][3][3] to 36 matrices in panels. Transposed and flipped, they are the weights of
/// the data gradient. Threads share the panels.
template <class V, class Filter>
void transform_weights(const WeightJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int k_count = job.transpose ? job.out_padded : job.in_padded;
  const int n_count = job.transpose ? job.in_padded : job.out_padded;
  const int k_real = job.transpose ? job.out : job.in, n_real = job.transpose ? job.in : job.out;
  const long matrix = long{k_count} * n_count;
  alignas(64) float taps[9 * L];
  const long items = matrix / L;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / k_count), k = static_cast<int>(item % k_count);
    for (int lane = 0; lane < L; ++lane) {
      const int n = panel * L + lane;
      const bool real = n < n_real && k < k_real;
      const int o = job.transpose ? k : n, i = job.transpose ? n : k;
      const float* w = job.w + (real ? (long{o} * job.in + i) * 9 : 0);
      const float scale = !real ? 0.f : job.scale != nullptr ? job.scale[o] : 1.f;
      for (int tap = 0; tap < 9; ++tap) taps[tap * L + lane] = scale * w[job.transpose ? 8 - tap : tap];
    }
    float* u = job.u + item * L;
    separable<V, Filter>(
        [&](int y, int x) { return V::load(taps + (y * 3 + x) * L); },
        [&](int y, int x, typename V::Reg value) { V::store(u + (y * 6 + x) * matrix, value); });
  }
}

/// 36 matrices of gradients to plain weight gradients [out][in][3][3].
template <class V, class FilterGrad>
void finish_weight_grad(const WeightGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const long matrix = long{job.in} * job.out;
  alignas(64) float taps[9 * L];
  const long items = long{job.out} / L * job.in_real;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / job.in_real), i = static_cast<int>(item % job.in_real);
    const float* du = job.du + (long{panel} * job.in + i) * L;
    separable<V, FilterGrad>(
        [&](int y, int x) { return V::load(du + (y * 6 + x) * matrix); },
        [&](int y, int x, typename V::Reg value) { V::store(taps + (y * 3 + x) * L, value); });
    for (int lane = 0; lane < L && panel * L + lane < job.out_real; ++lane) {
      float* dw = job.dw + (long{panel * L + lane} * job.in_real + i) * 9;
      for (int tap = 0; tap < 9; ++tap) dw[tap] = taps[tap * L + lane];
    }
  }
}

/// Adds the rows of one panel to `sums` of its channels.
template <class V>
void add_rows(const float* rows, long count, float* sums) {
  constexpr int L = V::kLanes;
  typename V::Reg sum = V::zero();
  for (long r = 0; r < count; ++r) sum = V::add(sum, V::load(rows + r * L));
  alignas(64) float lanes[L];
  V::store(lanes, sum);
  for (int lane = 0; lane < L; ++lane) sums[lane] += lanes[lane];
}

/// Weight gradients of one convolution: sums over all tiles of V^T * D per matrix, D the transformed output
/// gradient. The team transforms a block of tiles together, then splits the matrices, so that each sum has
/// one owner and one order whatever the number of threads is.
template <class V, class P, class Input, class OutputGrad, class FilterGrad, int kStep>
void weight_grad_with(const WeightGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  constexpr bool kDown = kStep == 8;
  const Images x{job.height, job.width, job.in / L};
  const Images g{kDown ? (job.height + 1) / 2 : job.height, kDown ? (job.width + 1) / 2 : job.width,
                 job.out / L};
  const TileGrid grid{tiles_of(g.height), tiles_of(g.width)};
  const long tiles = job.images * grid.per_image();
  // Bias gradients: in F(4,3) the point (1, 1) of the transform is the sum over the tile; with stride 2 the
  // 16 points of matrix 0 are the gradients themselves. Their owner is the thread of the last panel share.
  constexpr int kBiasMatrix = kDown ? 0 : 7;
  const int panel_begin = static_cast<int>(team.begin(g.panels)),
            panel_end = static_cast<int>(team.end(g.panels));
  for (int c = panel_begin * L; c < panel_end * L && c < job.out_real; ++c) {
    if (job.db != nullptr) job.db[c] = 0;
    if (kDown && job.db_shortcut != nullptr) job.db_shortcut[c] = 0;
  }
  const auto add_bias = [&](float* db, const float* panel, int p, int points, long rows, long capacity) {
    alignas(64) float sums[L] = {};
    for (int point = 0; point < points; ++point) add_rows<V>(panel + point * capacity * L, rows, sums);
    for (int lane = 0; lane < L && p * L + lane < job.out_real; ++lane) db[p * L + lane] += sums[lane];
  };

  for (long t = 0; t < tiles; t += job.block) {
    const long end = t + job.block < tiles ? t + job.block : tiles;
    const long rows = end - t, capacity = rows | 1, unit = capacity * L;
    const long a = t + team.begin(rows), b = t + team.end(rows);
    float* d_shortcut = job.d + P::before(36) * g.panels * unit;
    transform_in<V, Input, P, kStep, 1>(x, grid, job.x, a, b, t, capacity, job.v);
    transform_in<V, OutputGrad, P, 4, 0>(g, grid, job.g, a, b, t, capacity, job.d);
    if constexpr (kDown) copy_in<V>(g, grid, job.g_shortcut, a, b, t, capacity, d_shortcut);
    team.sync();
    const int groups = (g.panels + V::kGradVecs - 1) / V::kGradVecs;
    const long work = long{P::before(36)} * groups;
    long done = 0;
    for (int u = 0; u < P::kMatrices; ++u) {
      const int count = P::count(u);
      for (int group = 0; group < groups; ++group, done += count) {
        if (done < team.begin(work) || done >= team.end(work)) continue;
        const int n = g.panels * group / groups, n_end = g.panels * (group + 1) / groups;
        const long into = (long{u} * g.panels + n) * x.panels * L * L;
        for (int point = 0; point < count; ++point) {
          const float* v = job.v + (P::before(u) * x.panels + point) * unit;
          const float* d = job.d + (P::before(u) * g.panels + long{count} * n + point) * unit;
          gradient_product<V>(v, count * unit, x.panels, d, count * unit, n_end - n, static_cast<int>(rows),
                              job.du + into, t > 0 || point > 0);
          if (kDown && u == 0) {
            gradient_product<V>(v, count * unit, x.panels, d_shortcut + (long{count} * n + point) * unit,
                                count * unit, n_end - n, static_cast<int>(rows), job.du_shortcut + into,
                                t > 0 || point > 0);
          }
        }
      }
    }
    for (int p = panel_begin; p < panel_end; ++p) {
      const int points = kDown ? 16 : 1;
      const float* d = job.d + (P::before(kBiasMatrix) * g.panels + long{points} * p) * unit;
      if (job.db != nullptr) add_bias(job.db, d, p, points, rows, capacity);
      if (kDown && job.db_shortcut != nullptr) {
        add_bias(job.db_shortcut, d_shortcut + long{16} * p * unit, p, 16, rows, capacity);
      }
    }
    team.sync();
  }
  finish_weight_grad<V, FilterGrad>(job, team);
  if constexpr (kDown) {
    for (long o = team.begin(job.out_real); o < team.end(job.out_real); ++o) {
      for (int i = 0; i < job.in_real; ++i) {
        job.dw_shortcut[o * job.in_real + i] = job.du_shortcut[((o / L) * job.in + i) * L + o % L];
      }
    }
  }
}

template <class V>
void weight_grad(const WeightGradJob& job, const Team& team) {
  if (job.stride == 1) {
    weight_grad_with<V, Points<6>, F43Input, F43OutputGrad, F43FilterGrad, 4>(job, team);
  } else {
    weight_grad_with<V, Points<9>, PolyInput, PolyOutputGrad, PolyFilterGrad, 8>(job, team);
  }
}

/// Matrix [out][in] to panels [out/L][in][L], or its transpose to [in/L][out][L].
template <class V>
void pack(const float* w, int out, int in, int out_padded, int in_padded, bool transpose, const float* scale,
          float* packed) {
  constexpr int L = V::kLanes;
  const int k_count = transpose ? out_padded : in_padded, n_count = transpose ? in_padded : out_padded;
  for (int n = 0; n < n_count; ++n) {
    for (int k = 0; k < k_count; ++k) {
      const int o = transpose ? k : n, i = transpose ? n : k;
      const bool real = o < out && i < in;
      packed[(long{n / L} * k_count + k) * L + n % L] =
          real ? w[long{o} * in + i] * (scale != nullptr ? scale[o] : 1.f) : 0.f;
    }
  }
}

}  // namespace
}  // namespace ebclr::cpu
