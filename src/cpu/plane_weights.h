#pragma once
// Weights of planes.h on their way in, and weight gradients on the tile unit.

#include <algorithm>

#include "cpu/planes.h"

namespace ebclr::cpu {
namespace {

/// Plain weights [out][in][3][3], transposed and flipped, to the right operands of the sums: all taps of one
/// panel of columns and one pair of panels of rows at a time.
inline void plane_weights(const WeightJob& job, const Team& team) {
  using V = Avx512;
  const int panels = job.in_padded / 16, pairs = pairs_of(job.out_padded);
  const std::span<const Sum> sums =
      job.stride == 1 ? std::span<const Sum>(kConvSums) : std::span<const Sum>(kDownGradSums);
  alignas(64) float taps[9][kPair][16];
  const long items = long{panels} * pairs;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / pairs), pair = static_cast<int>(item % pairs);
    for (int k = 0; k < kPair; ++k) {
      for (int lane = 0; lane < 16; ++lane) {
        const int o = pair * kPair + k, i = panel * 16 + lane;
        const bool real = o < job.out && i < job.in;
        const float* w = job.w + (real ? (long{o} * job.in + i) * 9 : 0);
        const float scale = !real ? 0.f : job.scale != nullptr ? job.scale[o] : 1.f;
        for (int tap = 0; tap < 9; ++tap) taps[tap][k][lane] = scale * w[8 - tap];
      }
    }
    char* sum_begin = reinterpret_cast<char*>(job.u);
    for (const Sum& sum : sums) {
      if (sum.shortcut) continue;
      const int count = static_cast<int>(sum.taps.size());
      for (int t = 0; t < count; ++t) {
        char* tile = sum_begin + ((long{panel} * count + t) * pairs + pair) * kStepBytes;
        const int filter = sum.taps[t].filter;
        const auto value = [&](int k) {
          if (job.stride == 2) return V::load(taps[filter][k]);
          V::Reg w[3], points[6];
          for (int x = 0; x < 3; ++x) w[x] = V::load(taps[filter * 3 + x][k]);
          row_filter<V>(w, points);
          return points[sum.m];
        };
        for (int r = 0; r < kTileRows; ++r) {
          store_right(value(2 * r), value(2 * r + 1), tile + r * kRowBytes, kTileBytes);
        }
      }
      sum_begin += long{panels} * pairs * count * kStepBytes;
    }
  }
}

/// The shortcut's weights [out][in], transposed, as a right operand of one tap.
inline void plane_pack(const float* w, int out, int in, int out_padded, int in_padded, const float* scale,
                       float* packed) {
  const int panels = in_padded / 16, pairs = pairs_of(out_padded);
  const auto value = [&](int panel, int o) {
    alignas(64) float row[16];
    for (int lane = 0; lane < 16; ++lane) {
      const int i = panel * 16 + lane;
      row[lane] = o < out && i < in ? w[long{o} * in + i] * (scale != nullptr ? scale[o] : 1.f) : 0.f;
    }
    return Avx512::load(row);
  };
  char* tile = reinterpret_cast<char*>(packed);
  for (int panel = 0; panel < panels; ++panel) {
    for (int pair = 0; pair < pairs; ++pair, tile += kStepBytes) {
      for (int r = 0; r < kTileRows; ++r) {
        const int k = pair * kPair + 2 * r;
        store_right(value(panel, k), value(panel, k + 1), tile + r * kRowBytes, kTileBytes);
      }
    }
  }
}

/// Rows and columns of a 16 x 16 block exchanged.
[[gnu::always_inline]] inline void transpose16(__m512* r) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512d a = _mm512_castps_pd(t[4 * i + h]), b = _mm512_castps_pd(t[4 * i + 2 + h]);
      r[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      r[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  // r[4 i + j] now holds rows 4 i to 4 i + 3 of columns j, j + 4, j + 8, j + 12.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 a = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88),
                 b = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88),
                 d = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_f32x4(a, c, 0x88);
    t[8 + j] = _mm512_shuffle_f32x4(a, c, 0xdd);
    t[4 + j] = _mm512_shuffle_f32x4(b, d, 0x88);
    t[12 + j] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

/// Planes for weight gradients, whose sums run over positions: inputs as a left operand, [plane][panel][high,
/// low][16 channels][positions], and gradients as a right one, [plane][panel][high, low][positions /
/// 2][16][2].
struct GradPlanes {
  long line;       // positions of a row
  long positions;  // of results, rounded up to whole steps of 32; what is beyond the last is zero
  long left_capacity;
  int in_panels, out_panels;

  GradPlanes(long line, long rows, int extra, int in, int out)
      : line(line),
        positions((rows * line + kPair - 1) / kPair * kPair),
        left_capacity(((positions + extra * line + kPair - 1) / kPair | 1) * kPair),
        in_panels(in / 16),
        out_panels(out / 16) {}

  long left_row() const { return left_capacity * 2; }
  long left_low() const { return 16 * left_row(); }
  long left_panel() const { return 2 * left_low(); }
  long left_plane() const { return in_panels * left_panel() + kRowBytes; }
  long right_low() const { return positions / 2 * kRowBytes; }
  long right_panel() const { return 2 * right_low() + kRowBytes; }
  long right_plane() const { return out_panels * right_panel(); }
};

/// Walks the positions of a band: row, image, column.
struct PositionCursor {
  int row = 0, image = 0, col = 0;
  void next(int images, int cols) {
    if (++col < cols) return;
    col = 0;
    if (++image < images) return;
    image = 0;
    ++row;
  }
};

/// Fills one panel of the left operand's planes. values(cursor, into) gives the kPlanes vectors of a
/// position; `count` positions have any.
template <int kPlanes, class Values>
void fill_left(const GradPlanes& planes, const Band& band, int cols, int panel, long count, char* data,
               const Values& values) {
  using V = Avx512;
  alignas(64) float block[kPlanes][16][16];
  PositionCursor cursor;
  for (long first = 0; first < planes.left_capacity; first += 16) {
    for (int i = 0; i < 16; ++i) {
      V::Reg point[kPlanes];
      if (first + i < count) {
        values(cursor, point);
        cursor.next(band.images, cols);
      } else {
        for (auto& value : point) value = V::zero();
      }
#pragma GCC unroll 6
      for (int k = 0; k < kPlanes; ++k) V::store(block[k][i], point[k]);
    }
    for (int k = 0; k < kPlanes; ++k) {
      __m512 r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = V::load(block[k][i]);
      transpose16(r);
      char* at = data + k * planes.left_plane() + panel * planes.left_panel() + first * 2;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const __m512 high = nearest_bf16(r[i]);
        char* to = at + i * planes.left_row();
        _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(high)));
        _mm256_store_si256(reinterpret_cast<__m256i*>(to + planes.left_low()),
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_sub_ps(r[i], high))));
      }
    }
  }
}

/// Fills one panel of the right operand's planes.
template <int kPlanes, class Values>
void fill_right(const GradPlanes& planes, const Band& band, int cols, int panel, long count, char* data,
                const Values& values) {
  using V = Avx512;
  PositionCursor cursor;
  for (long first = 0; first < planes.positions; first += 2) {
    V::Reg point[2][kPlanes];
    for (int i = 0; i < 2; ++i) {
      if (first + i < count) {
        values(cursor, point[i]);
        cursor.next(band.images, cols);
      } else {
        for (auto& value : point[i]) value = V::zero();
      }
    }
#pragma GCC unroll 6
    for (int k = 0; k < kPlanes; ++k) {
      store_right(point[0][k], point[1][k],
                  data + k * planes.right_plane() + panel * planes.right_panel() + first / 2 * kRowBytes,
                  planes.right_low());
    }
  }
}

/// kRows x kCols tiles of C = left * right (+ C if add) over all positions, 32 at a time.
template <int kRows, int kCols>
[[gnu::noinline]] void tile_gradient_sum(const GradPlanes& p, const char* a, const char* b, float* c,
                                         long c_panel, bool add) {
  using Sum = TileSum<kRows, kCols>;
  Sum::begin(c, c_panel, add);
  for (long step = 0; step < p.positions; step += kPair) {
    Sum::step({a, p.left_row(), p.left_low(), p.left_panel()}, {b, kRowBytes, p.right_low(), p.right_panel()},
              [] {});
    a += kRowBytes;
    b += kTileBytes;
  }
  Sum::end(c, c_panel);
}

/// Columns [n, n + cols) panels, all rows, of one tap's sum.
inline void tile_gradient_product(const GradPlanes& p, const char* a, const char* b, int cols, float* c,
                                  long c_panel, bool add) {
  for (int m = 0; m < p.in_panels; m += 2) {
    const char* from = a + m * p.left_panel();
    float* into = c + m * 256;
    if (m + 1 < p.in_panels) {
      if (cols == 2) {
        tile_gradient_sum<2, 2>(p, from, b, into, c_panel, add);
      } else {
        tile_gradient_sum<2, 1>(p, from, b, into, c_panel, add);
      }
    } else if (cols == 2) {
      tile_gradient_sum<1, 2>(p, from, b, into, c_panel, add);
    } else {
      tile_gradient_sum<1, 1>(p, from, b, into, c_panel, add);
    }
  }
}

/// One term of the weight gradient: the sum over positions of a plane of inputs, from some row on, times a
/// plane of gradients.
struct GradTerm {
  int plane, row, gradient;
};
struct ConvGradTerms {
  static constexpr int kCount = 18;
  static constexpr GradTerm of(int i) { return {i / 3, i % 3, i / 3}; }  // point, row of the filter
};
struct DownGradTerms {
  // Planes 0 to 2: columns 2x-1, 2x, 2x+1 of row 2h; 3 to 5: of row 2h-1.
  static constexpr int kCount = 10;  // nine taps, then the shortcut
  static constexpr GradTerm of(int i) {
    return i == 9 ? GradTerm{1, 0, 1} : GradTerm{i % 3 + (i / 3 == 1 ? 0 : 3), i / 6, 0};
  }
};

/// Where the parts of one sum of gradients lie.
struct PlaneGradSums {
  int in, out, stride;
  std::size_t term() const { return std::size_t(in) * out + 16; }
  std::size_t terms() const { return stride == 1 ? ConvGradTerms::kCount : DownGradTerms::kCount; }
  std::size_t bias() const { return terms() * term(); }
  std::size_t shortcut_bias() const { return bias() + out; }
  std::size_t floats() const { return shortcut_bias() + out; }
};

inline Grid grad_grid(const Layer& layer, int images) {
  return layer.stride == 1 ? Grid{images, layer.height, (layer.width + 3) / 4}
                           : Grid{images, (layer.height + 1) / 2, (layer.width + 1) / 2};
}

inline GradSpace plane_grad_space(const Layer& layer, const GradCut& cut) {
  const Grid grid = grad_grid(layer, 1);
  const BandSize size(grid, cut.block);
  // A band of whole images may have fewer of them: then its rows are shorter, never longer.
  const GradPlanes planes(long{size.images} * grid.cols, size.rows, 2, layer.in, layer.out);
  return {static_cast<std::size_t>(6 * planes.left_plane()) / sizeof(float),
          static_cast<std::size_t>(6 * planes.right_plane()) / sizeof(float),
          PlaneGradSums{layer.in, layer.out, layer.stride}.floats()};
}

/// Each thread sums on its own where its sum is not far larger than L2, else the team shares it.
inline GradCut plane_grad_cut(const Layer& layer, std::size_t l2_bytes) {
  const std::size_t sum = PlaneGradSums{layer.in, layer.out, layer.stride}.floats() * sizeof(float);
  return {sum > 2 * l2_bytes, 256};
}

/// Sums of gradients, `parts` of them one after the other, to plain gradients.
inline void finish_plane_grad(const WeightGradJob& job, const PlaneGradSums& layout, int parts,
                              const Team& team) {
  using V = Avx512;
  const auto term = static_cast<long>(layout.term()), part = static_cast<long>(layout.floats());
  alignas(64) float taps[9][16];
  const long items = long{job.out} / 16 * job.in_real;
  for (long item = team.begin(items); item < team.end(items); ++item) {
    const int panel = static_cast<int>(item / job.in_real), i = static_cast<int>(item % job.in_real);
    const float* du = job.du + (long{panel} * job.in + i) * 16;
    const auto total = [&](int t) {
      auto sum = V::load(du + t * term);
      for (int k = 1; k < parts; ++k) sum = V::add(sum, V::load(du + t * term + k * part));
      return sum;
    };
    for (int y = 0; y < 3; ++y) {
      V::Reg row[3];
      if (job.stride == 1) {
        V::Reg points[6];
        for (int point = 0; point < 6; ++point) points[point] = total(point * 3 + y);
        row_filter_grad<V>(points, row);
      } else {
        for (int x = 0; x < 3; ++x) row[x] = total(y * 3 + x);
      }
      for (int x = 0; x < 3; ++x) V::store(taps[y * 3 + x], row[x]);
    }
    alignas(64) float shortcut[16];
    if (job.stride == 2) V::store(shortcut, total(9));
    for (int lane = 0; lane < 16 && panel * 16 + lane < job.out_real; ++lane) {
      const long at = long{panel * 16 + lane} * job.in_real + i;
      for (int tap = 0; tap < 9; ++tap) job.dw[at * 9 + tap] = taps[tap][lane];
      if (job.stride == 2) job.dw_shortcut[at] = shortcut[lane];
    }
  }
  const auto bias = [&](long at) {
    float sum = 0;
    for (int k = 0; k < parts; ++k) sum += job.du[k * part + at];
    return sum;
  };
  for (long o = team.begin(job.out_real); o < team.end(job.out_real); ++o) {
    if (job.db != nullptr) job.db[o] = bias(static_cast<long>(layout.bias()) + o);
    if (job.stride == 2 && job.db_shortcut != nullptr) {
      job.db_shortcut[o] = bias(static_cast<long>(layout.shortcut_bias()) + o);
    }
  }
}

/// Weight gradients of one convolution. As in weights.h, either each thread sums over bands of its own, and
/// the sums are added at the end, or the team fills the planes of a band together and divides the sums.
template <class Terms>
void plane_weight_grad_with(const WeightGradJob& job, const Team& team) {
  using V = Avx512;
  constexpr bool kDown = Terms::kCount == DownGradTerms::kCount;
  constexpr int kExtra = kDown ? 1 : 2, kGradients = kDown ? 2 : 6;
  const TileUnit unit;
  const Layer layer{job.in, job.out, job.stride, job.height, job.width};
  const Grid grid = grad_grid(layer, job.images);
  const int in_panels = job.in / 16, out_panels = job.out / 16;
  const int g_height = grid.rows, g_width = kDown ? grid.cols : job.width;
  const Team crew = job.shared ? team : Team{};
  const PlaneGradSums layout{job.in, job.out, job.stride};
  float* sums = job.du + (job.shared ? 0 : team.id * layout.floats());
  const long rows = long{grid.images} * grid.rows;
  const long first = job.shared ? 0 : team.begin(rows), last = job.shared ? rows : team.end(rows);
  if (first == last) std::fill_n(sums, layout.floats(), 0.f);
  bool later = false;
  for_each_band(grid, job.block, first, last, [&](const Band& band) {
    const GradPlanes planes(long{band.images} * grid.cols, band.rows, kExtra, job.in, job.out);
    char* left = reinterpret_cast<char*>(job.v);
    char* right = reinterpret_cast<char*>(job.d);
    const long lines = planes.line;
    for (int panel = static_cast<int>(crew.begin(in_panels)); panel < crew.end(in_panels); ++panel) {
      const auto pixel_row = [&](int image, int y) -> const float* {
        if (y < 0 || y >= job.height) return nullptr;
        return job.x + (((band.image + image) * in_panels + panel) * job.height + y) * job.width * 16;
      };
      const auto pixel = [&](const float* row, int x) {
        return V::load(row != nullptr && x >= 0 && x < job.width ? row + long{x} * 16 : kNoPixel);
      };
      fill_left<6>(planes, band, grid.cols, panel, (band.rows + kExtra) * lines, left,
                   [&](const PositionCursor& at, V::Reg* into) {
                     if constexpr (kDown) {
                       const int h = band.row + at.row;
                       const float *even = pixel_row(at.image, 2 * h), *odd = pixel_row(at.image, 2 * h - 1);
                       for (int dx = 0; dx < 3; ++dx) {
                         into[dx] = pixel(even, 2 * at.col + dx - 1);
                         into[3 + dx] = pixel(odd, 2 * at.col + dx - 1);
                       }
                     } else {
                       const float* row = pixel_row(at.image, band.row - 1 + at.row);
                       V::Reg d[6];
                       for (int k = 0; k < 6; ++k) d[k] = pixel(row, 4 * at.col - 1 + k);
                       row_input<V>(d, into);
                     }
                   });
    }
    for (int panel = static_cast<int>(crew.begin(out_panels)); panel < crew.end(out_panels); ++panel) {
      float* bias = sums + layout.bias() + panel * 16;
      float* shortcut_bias = sums + layout.shortcut_bias() + panel * 16;
      auto bias_sum = later ? V::load(bias) : V::zero(),
           shortcut_sum = later ? V::load(shortcut_bias) : V::zero();
      fill_right<kGradients>(
          planes, band, grid.cols, panel, band.rows * lines, right,
          [&](const PositionCursor& at, V::Reg* into) {
            const long row =
                (((band.image + at.image) * out_panels + panel) * g_height + band.row + at.row) * g_width;
            if constexpr (kDown) {
              into[0] = V::load(job.g + (row + at.col) * 16);
              into[1] = V::load(job.g_shortcut + (row + at.col) * 16);
              bias_sum = V::add(bias_sum, into[0]);
              shortcut_sum = V::add(shortcut_sum, into[1]);
            } else {
              V::Reg g[4];
              for (int k = 0; k < 4; ++k) {
                const int x = 4 * at.col + k;
                g[k] = V::load(x < g_width ? job.g + (row + x) * 16 : kNoPixel);
              }
              bias_sum = V::add(bias_sum, V::add(V::add(g[0], g[1]), V::add(g[2], g[3])));
              row_output_grad<V>(g, into);
            }
          });
      V::store(bias, bias_sum);
      V::store(shortcut_bias, shortcut_sum);
    }
    crew.sync();
    const int groups = (out_panels + 1) / 2;
    const long work = long{Terms::kCount} * groups;
    for (long item = crew.begin(work); item < crew.end(work); ++item) {
      const int t = static_cast<int>(item / groups), n = static_cast<int>(item % groups) * 2;
      const GradTerm term = Terms::of(t);
      tile_gradient_product(planes, left + term.plane * planes.left_plane() + term.row * lines * 2,
                            right + term.gradient * planes.right_plane() + n * planes.right_panel(),
                            std::min(2, out_panels - n), sums + t * layout.term() + long{n} * job.in * 16,
                            long{job.in} * 16, later);
    }
    crew.sync();
    later = true;
  });
  if (!job.shared) team.sync();
  finish_plane_grad(job, layout, job.shared ? 1 : team.size, team);
}

inline void plane_weight_grad(const WeightGradJob& job, const Team& team) {
  if (job.stride == 1) {
    plane_weight_grad_with<ConvGradTerms>(job, team);
  } else {
    plane_weight_grad_with<DownGradTerms>(job, team);
  }
}

}  // namespace
}  // namespace ebclr::cpu
