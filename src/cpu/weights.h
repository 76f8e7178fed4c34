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

/// The taps of channel k of what is read and panel `panel` of what is written, [9][kLanes]; zero where one of
/// them is padding.
template <class V>
void gather_taps(const WeightJob& job, int panel, int k, float* taps) {
  constexpr int L = V::kLanes;
  const int k_real = job.transpose ? job.out : job.in, n_real = job.transpose ? job.in : job.out;
  for (int lane = 0; lane < L; ++lane) {
    const int n = panel * L + lane;
    const bool real = n < n_real && k < k_real;
    const int o = job.transpose ? k : n, i = job.transpose ? n : k;
    const float* w = job.w + (real ? (long{o} * job.in + i) * 9 : 0);
    const float scale = !real ? 0.f : job.scale != nullptr ? job.scale[o] : 1.f;
    for (int tap = 0; tap < 9; ++tap) taps[tap * L + lane] = scale * w[job.transpose ? 8 - tap : tap];
  }
}

/// Plain weights [out][in][3][3] to 36 matrices in panels, or to taps. Transposed and flipped, they are the
/// weights of the data gradient. Threads share the panels.
template <class V, class Filter>
void transform_weights(const WeightJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int k_count = job.transpose ? job.out_padded : job.in_padded;
  const int n_count = job.transpose ? job.in_padded : job.out_padded;
  const long matrix = weight_matrix(k_count, n_count);
  alignas(64) float taps[9 * L];
  const long items = long{k_count} * n_count / L;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / k_count), k = static_cast<int>(item % k_count);
    gather_taps<V>(job, panel, k, taps);
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

/// Sums of weight gradients over blocks of tiles: V^T * D per matrix, D the transformed output gradient.
template <class V, class P, class Input, class OutputGrad, int kStep>
class GradSummer {
 public:
  static constexpr int L = V::kLanes;
  static constexpr bool kDown = kStep == 8;

  GradSummer(const WeightGradJob& job, const Team& crew, float* v, float* d, float* sums)
      : job_(job),
        crew_(crew),
        x_{job.height, job.width, job.in / L},
        g_{kDown ? (job.height + 1) / 2 : job.height, kDown ? (job.width + 1) / 2 : job.width, job.out / L},
        grid_{tiles_of(g_.height), tiles_of(g_.width)},
        v_(v),
        d_(d),
        sums_(sums) {}

  long tiles() const { return job_.images * grid_.per_image(); }

  /// Adds the tiles [first, last) to the sums, which begin here.
  void run(long first, long last) {
    if (first == last) std::fill_n(sums_, layout().floats(), 0.f);
    const long blocks = (last - first + job_.block - 1) / job_.block;
    for (long index = 0; index < blocks; ++index) {
      first_ = first + (last - first) * index / blocks;
      rows_ = first + (last - first) * (index + 1) / blocks - first_;
      later_ = index > 0;
      // A crew of several hands out the transforms in small pieces, one thread does them at once.
      const long pieces = crew_.size > 1 ? std::min<long>(rows_, 4L * crew_.size) : 1;
      crew_.deal(pieces, [&](long piece) {
        transform(first_ + rows_ * piece / pieces, first_ + rows_ * (piece + 1) / pieces);
      });
      crew_.sync();
      const int groups = (g_.panels + V::kGradVecs - 1) / V::kGradVecs;
      crew_.deal(long{P::kMatrices} * groups, [&](long item) {
        multiply(static_cast<int>(item / groups), static_cast<int>(item % groups), groups);
      });
      for (auto p = static_cast<int>(crew_.begin(g_.panels)); p < crew_.end(g_.panels); ++p) add_biases(p);
      crew_.sync();
    }
  }

 private:
  GradSums layout() const { return {job_.in, job_.out, job_.stride}; }
  long capacity() const { return rows_ | 1; }
  long unit() const { return capacity() * L; }
  float* d_shortcut() const { return d_ + P::start(36, g_.panels, unit(), L); }

  void transform(long a, long b) {
    transform_in<V, Input, P, kStep, 1>(x_, grid_, job_.x, a, b, first_, capacity(), v_);
    transform_in<V, OutputGrad, P, 4, 0>(g_, grid_, job_.g, a, b, first_, capacity(), d_);
    if constexpr (kDown) copy_in<V>(g_, grid_, job_.g_shortcut, a, b, first_, capacity(), d_shortcut());
  }

  /// One group of output panels of one matrix: each sum has one owner per block.
  void multiply(int u, int group, int groups) {
    const int count = P::count(u), rows = static_cast<int>(rows_);
    const int n = g_.panels * group / groups, n_end = g_.panels * (group + 1) / groups;
    const long into = u * weight_matrix(job_.in, job_.out) + long{n} * x_.panels * L * L;
    for (int point = 0; point < count; ++point) {
      const bool add = later_ || point > 0;
      const float* v = v_ + P::start(u, x_.panels, unit(), L) + point * unit();
      const float* d = d_ + P::start(u, g_.panels, unit(), L) + (long{count} * n + point) * unit();
      gradient_product<V>(v, count * unit(), x_.panels, d, count * unit(), n_end - n, rows, sums_ + into,
                          add);
      if (kDown && u == 0) {
        gradient_product<V>(v, count * unit(), x_.panels, d_shortcut() + (long{count} * n + point) * unit(),
                            count * unit(), n_end - n, rows, sums_ + layout().shortcut() + into, add);
      }
    }
  }

  /// In F(4,3) the point (1, 1) of the transform is the sum over the tile; with stride 2 the 16 points of
  /// matrix 0 are the gradients themselves.
  void add_biases(int panel) {
    constexpr int kMatrix = kDown ? 0 : 7, kPoints = kDown ? 16 : 1;
    const auto add = [&](float* db, const float* from) {
      auto sum = later_ ? V::load(db) : V::zero();
      for (int point = 0; point < kPoints; ++point) {
        for (long r = 0; r < rows_; ++r) sum = V::add(sum, V::load(from + (point * capacity() + r) * L));
      }
      V::store(db, sum);
    };
    const long at = long{kPoints} * panel * unit();
    add(sums_ + layout().bias() + panel * L, d_ + P::start(kMatrix, g_.panels, unit(), L) + at);
    if constexpr (kDown) add(sums_ + layout().shortcut_bias() + panel * L, d_shortcut() + at);
  }

  const WeightGradJob& job_;
  Team crew_;  // those who work on the same block
  Images x_, g_;
  TileGrid grid_;
  float *v_, *d_, *sums_;
  long first_ = 0, rows_ = 0;
  bool later_ = false;
};

/// Weight gradients of one convolution. Either whoever is free sums over the next part of the tiles, and the
/// parts are added in their order at the end; or the team transforms a block of tiles together and then hands
/// out the matrices, so that each sum has one owner. The first needs no waiting and holds several sums, the
/// second holds one, which is what counts where that exceeds a core's cache.
template <class V, class P, class Input, class OutputGrad, class FilterGrad, int kStep>
void weight_grad_with(const WeightGradJob& job, const Team& team) {
  using Summer = GradSummer<V, P, Input, OutputGrad, kStep>;
  const GradSums layout{job.in, job.out, job.stride};
  const int parts = job.shared ? 1 : grad_parts(team.asked);
  if (job.shared) {
    Summer summer(job, team, job.v, job.d, job.du);
    summer.run(0, summer.tiles());
  } else {
    team.deal(parts, [&](long part) {
      Summer summer(job, Team{}, job.v, job.d, job.du + part * static_cast<long>(layout.floats()));
      summer.run(summer.tiles() * part / parts, summer.tiles() * (part + 1) / parts);
    });
    team.sync();
  }
  finish_weight_grad<V, FilterGrad>(job, layout, parts, team);
}

template <class V>
void weight_grad(const WeightGradJob& job, const Team& team) {
  if (job.stride == 1) {
    weight_grad_with<V, Points<6>, F43Input, F43OutputGrad, F43FilterGrad, 4>(job, team);
  } else {
    weight_grad_with<V, Points<9>, PolyInput, PolyOutputGrad, PolyFilterGrad, 8>(job, team);
  }
}

/// Matrix [out][in] to panels [out/L][in][L], or its transpose to [in/L][out][L]. Read row by row either way:
/// rows a power of two apart share cache sets.
template <class V>
void pack(const float* w, int out, int in, int out_padded, int in_padded, bool transpose, const float* scale,
          float* packed) {
  constexpr int L = V::kLanes;
  std::fill_n(packed, long{out_padded} * in_padded, 0.f);
  for (int o = 0; o < out; ++o) {
    const float factor = scale != nullptr ? scale[o] : 1.f;
    const float* row = w + long{o} * in;
    if (transpose) {
      for (int i = 0; i < in; ++i) {
        packed[(long{i / L} * out_padded + o) * L + i % L] = row[i] * factor;
      }
    } else {
      float* into = packed + long{o / L} * in_padded * L + o % L;
      for (int i = 0; i < in; ++i) into[long{i} * L] = row[i] * factor;
    }
  }
}

}  // namespace
}  // namespace ebclr::cpu
