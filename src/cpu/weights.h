#pragma once
// Weights on their way in (transformed once per optimizer step) and their gradients on the way out.

#include <algorithm>

#include "cpu/winograd.h"

namespace ebclr::cpu {
namespace {

/// Where the parts of one sum of weight gradients lie: 36 matrices, with stride 2 the shortcut's, biases.
struct GradSums {
  int in, out, stride;
  constexpr std::size_t shortcut() const {
    return std::size_t{36} * static_cast<std::size_t>(weight_matrix(in, out));
  }
  constexpr std::size_t bias() const { return shortcut() + (stride == 2 ? std::size_t(in) * out : 0); }
  constexpr std::size_t shortcut_bias() const { return bias() + out; }
  constexpr std::size_t floats() const { return shortcut_bias() + (stride == 2 ? out : 0); }
};

/// How to cut the weight gradients of a convolution. Each thread sums on its own where its sum about fits L2
/// (backward of the whole network at batch 64: 3.13 ms per image where the team shared all sums in 3.37, and
/// 3.19 against 3.81 in the median, because nobody waits). Otherwise the team shares the sum: V and D of 2.5
/// MB stay near the cores, and as the sums are read and written once per step, steps must not be too small.
inline GradCut winograd_grad_cut(const Layer& layer, std::size_t l2_bytes) {
  const std::size_t sum = winograd_weight_floats(layer.in, layer.out, 3, true) * sizeof(float);
  if (sum <= l2_bytes * 5 / 4) return {false, (sum <= l2_bytes * 3 / 4 ? 32 : 48) / layer.stride};
  const std::size_t tile = (layer.stride == 1 ? 36 : 97) * std::size_t(layer.in + layer.out) * sizeof(float);
  const int least = (sum > (std::size_t{4} << 20) ? 128 : 64) / layer.stride;
  return {true, std::clamp(static_cast<int>((std::size_t{5} << 19) / tile), least, 512)};
}

inline GradSpace winograd_grad_space(const Layer& layer, const GradCut& cut) {
  return {v_floats(cut.block, layer.in, layer.stride), v_floats(cut.block, layer.out, layer.stride),
          GradSums{layer.in, layer.out, layer.stride}.floats()};
}

/// Plain weights [out][in][3][3] to 36 matrices in panels, or to taps. Transposed and flipped, they are the
/// weights of the data gradient. Threads share the panels.
template <class V, class Filter>
void transform_weights(const WeightJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int k_count = job.transpose ? job.out_padded : job.in_padded;
  const int n_count = job.transpose ? job.in_padded : job.out_padded;
  const int k_real = job.transpose ? job.out : job.in, n_real = job.transpose ? job.in : job.out;
  const long matrix = weight_matrix(k_count, n_count);
  alignas(64) float taps[9 * L];
  const long items = long{k_count} * n_count / L;
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
    if (job.taps != nullptr) {
      for (int tap = 0; tap < 9; ++tap) V::store(job.taps + (item * 9 + tap) * L, V::load(taps + tap * L));
    }
    if (job.u == nullptr) continue;
    float* u = job.u + item * L;
    separable<V, Filter>([&](int y, int x) { return V::load(taps + (y * 3 + x) * L); },
                         [&](int y, const typename V::Reg* row) {
#pragma GCC unroll 6
                           for (int x = 0; x < 6; ++x) V::store(u + (y * 6 + x) * matrix, row[x]);
                         });
  }
}

/// Sums of gradients, `parts` of them one after the other, to plain gradients of weights and biases.
template <class V, class FilterGrad>
void finish_weight_grad(const WeightGradJob& job, const GradSums& layout, int parts, const Team& team) {
  constexpr int L = V::kLanes;
  const long matrix = weight_matrix(job.in, job.out), part = static_cast<long>(layout.floats());
  alignas(64) float taps[9 * L];
  const long items = long{job.out} / L * job.in_real;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / job.in_real), i = static_cast<int>(item % job.in_real);
    const float* du = job.du + (long{panel} * job.in + i) * L;
    separable<V, FilterGrad>(
        [&](int y, int x) {
          auto sum = V::load(du + (y * 6 + x) * matrix);
          for (int i = 1; i < parts; ++i) sum = V::add(sum, V::load(du + (y * 6 + x) * matrix + i * part));
          return sum;
        },
        [&](int y, const typename V::Reg* row) {
#pragma GCC unroll 3
          for (int x = 0; x < 3; ++x) V::store(taps + (y * 3 + x) * L, row[x]);
        });
    for (int lane = 0; lane < L && panel * L + lane < job.out_real; ++lane) {
      float* dw = job.dw + (long{panel * L + lane} * job.in_real + i) * 9;
      for (int tap = 0; tap < 9; ++tap) dw[tap] = taps[tap * L + lane];
    }
  }
  const auto total = [&](long at) {
    float sum = 0;
    for (int i = 0; i < parts; ++i) sum += job.du[i * part + at];
    return sum;
  };
  for (long o = team.begin(job.out_real); o < team.end(job.out_real); ++o) {
    if (job.db != nullptr) job.db[o] = total(layout.bias() + o);
    if (job.stride == 1) continue;
    if (job.db_shortcut != nullptr) job.db_shortcut[o] = total(layout.shortcut_bias() + o);
    for (int i = 0; i < job.in_real; ++i) {
      job.dw_shortcut[o * job.in_real + i] = total(layout.shortcut() + ((o / L) * job.in + i) * L + o % L);
    }
  }
}

/// Weight gradients of one convolution: sums over all tiles of V^T * D per matrix, D the transformed output
/// gradient. Either each thread sums over tiles of its own, and the sums are added at the end; or the team
/// transforms a block of tiles together and then splits the matrices, so that each sum has one owner. The
/// first needs no waiting and holds as many sums as threads, the second holds one, which is what counts
/// where that exceeds a core's cache. Either way the order depends on nothing but the number of threads.
template <class V, class P, class Input, class OutputGrad, class FilterGrad, int kStep>
void weight_grad_with(const WeightGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  constexpr bool kDown = kStep == 8;
  const Images x{job.height, job.width, job.in / L};
  const Images g{kDown ? (job.height + 1) / 2 : job.height, kDown ? (job.width + 1) / 2 : job.width,
                 job.out / L};
  const TileGrid grid{tiles_of(g.height), tiles_of(g.width)};
  const long tiles = job.images * grid.per_image();
  const Team crew = job.shared ? team : Team{};  // those who work on the same block
  const long first = job.shared ? 0 : team.begin(tiles), last = job.shared ? tiles : team.end(tiles);
  const GradSums layout{job.in, job.out, job.stride};
  float* sums = job.du + (job.shared ? 0 : team.id * layout.floats());
  if (first == last) std::fill_n(sums, layout.floats(), 0.f);
  // Bias gradients: in F(4,3) the point (1, 1) of the transform is the sum over the tile; with stride 2 the
  // 16 points of matrix 0 are the gradients themselves.
  constexpr int kBiasMatrix = kDown ? 0 : 7, kBiasPoints = kDown ? 16 : 1;
  const int panel_begin = static_cast<int>(crew.begin(g.panels)),
            panel_end = static_cast<int>(crew.end(g.panels));
  const auto add_bias = [&](float* db, const float* panel, long rows, long capacity, bool add) {
    auto sum = add ? V::load(db) : V::zero();
    for (int point = 0; point < kBiasPoints; ++point) {
      for (long r = 0; r < rows; ++r) sum = V::add(sum, V::load(panel + (point * capacity + r) * L));
    }
    V::store(db, sum);
  };

  const long blocks = (last - first + job.block - 1) / job.block;
  for (long index = 0; index < blocks; ++index) {
    const long t = first + (last - first) * index / blocks,
               end = first + (last - first) * (index + 1) / blocks;
    const long rows = end - t, capacity = rows | 1, unit = capacity * L;
    const long a = t + crew.begin(rows), b = t + crew.end(rows);
    const bool later = index > 0;
    float* d_shortcut = job.d + P::start(36, g.panels, unit, L);
    transform_in<V, Input, P, kStep, 1>(x, grid, job.x, a, b, t, capacity, job.v);
    transform_in<V, OutputGrad, P, 4, 0>(g, grid, job.g, a, b, t, capacity, job.d);
    if constexpr (kDown) copy_in<V>(g, grid, job.g_shortcut, a, b, t, capacity, d_shortcut);
    crew.sync();
    const int groups = (g.panels + V::kGradVecs - 1) / V::kGradVecs;
    const long work = long{P::before(36)} * groups;
    long done = 0;
    for (int u = 0; u < P::kMatrices; ++u) {
      const int count = P::count(u);
      for (int group = 0; group < groups; ++group, done += count) {
        if (done < crew.begin(work) || done >= crew.end(work)) continue;
        const int n = g.panels * group / groups, n_end = g.panels * (group + 1) / groups;
        const long into = u * weight_matrix(job.in, job.out) + long{n} * x.panels * L * L;
        for (int point = 0; point < count; ++point) {
          const float* v = job.v + P::start(u, x.panels, unit, L) + point * unit;
          const float* d = job.d + P::start(u, g.panels, unit, L) + (long{count} * n + point) * unit;
          gradient_product<V>(v, count * unit, x.panels, d, count * unit, n_end - n, static_cast<int>(rows),
                              sums + into, later || point > 0);
          if (kDown && u == 0) {
            gradient_product<V>(v, count * unit, x.panels, d_shortcut + (long{count} * n + point) * unit,
                                count * unit, n_end - n, static_cast<int>(rows),
                                sums + layout.shortcut() + into, later || point > 0);
          }
        }
      }
    }
    for (int p = panel_begin; p < panel_end; ++p) {
      const long at = long{kBiasPoints} * p * unit;
      add_bias(sums + layout.bias() + p * L, job.d + P::start(kBiasMatrix, g.panels, unit, L) + at, rows,
               capacity, later);
      if constexpr (kDown) {
        add_bias(sums + layout.shortcut_bias() + p * L, d_shortcut + at, rows, capacity, later);
      }
    }
    crew.sync();
  }
  if (!job.shared) team.sync();
  finish_weight_grad<V, FilterGrad>(job, layout, job.shared ? 1 : team.size, team);
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
