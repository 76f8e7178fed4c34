#pragma once
// 3x3 convolutions as sums of matrix products between transformed tiles (see transforms.h).
//
// A tile is 4x4 outputs. Its transform has kSide x kSide points; each point belongs to one of 36 weight
// matrices. In F(4x4,3x3) that is one point per matrix; with stride 2 the points of the even phase share
// matrices: 81 points, 16 of them with the matrix of the middle tap, which are also what the 1x1 shortcut
// reads.
//
//   x --in--> V [36 matrices][in/L][points * tiles][L]
//             M [36 matrices][out/L][points * tiles][L] = V * U, matrix by matrix
//             (rows of V in words, see gemm.h)
//   y <-out-- M, with bias, residual, activation and its signs on the way

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/epilogue.h"
#include "cpu/gemm.h"
#include "cpu/kernels.h"
#include "cpu/transforms.h"

namespace ebclr::cpu {
namespace {

/// Floats from one of the 36 matrices of transformed weights to the next. A line of padding, because places a
/// power of two apart share a cache set.
constexpr long weight_matrix(int in, int out) {
  return long{in} * out + 16;
}
/// Floats of the weights of a convolution: 36 matrices, or the shortcut's one.
inline std::size_t winograd_weight_floats(int in, int out, int kernel, bool /*gradient*/) {
  return kernel == 3 ? std::size_t{36} * static_cast<std::size_t>(weight_matrix(in, out))
                     : static_cast<std::size_t>(in) * static_cast<std::size_t>(out);
}
/// A vector of padding behind each of the 36 matrices of a block: at whole powers of two they would share
/// cache sets.
inline constexpr std::size_t kMatrixPadding = 36 * 16;
/// Floats that a block of tiles takes after the input transform (stride 2: with the shortcut's share).
constexpr std::size_t v_floats(int block, int channels, int stride) {
  return std::size_t(stride == 1 ? 36 : 81 + 16) * (block | 1) * channels + kMatrixPadding;
}
/// Floats of the products of a block for a group of panels.
constexpr std::size_t m_floats(const Schedule& schedule, int lanes, int stride) {
  return std::size_t(stride == 1 ? 36 : 81 + 16) * (schedule.block | 1) * schedule.group * lanes +
         kMatrixPadding;
}

/// Which matrix, and which row block of it, a point belongs to.
template <int kSide_>
struct Points {
  static constexpr int kSide = kSide_;               // 6 or 9 points per dimension
  static constexpr int kShare = kSide == 9 ? 4 : 1;  // points of the first class per dimension
  static constexpr int kMatrices = 36;

  static constexpr int class_of(int p) { return p < kShare ? 0 : p - kShare + 1; }
  static constexpr int slot_of(int p) { return p < kShare ? p : 0; }
  static constexpr int width(int cls) { return cls == 0 ? kShare : 1; }
  /// Points that share matrix u.
  static constexpr int count(int u) { return width(u / 6) * width(u % 6); }
  /// Points of all matrices before u; before(36) is the number of points.
  static constexpr int before(int u) {
    int sum = 0;
    for (int i = 0; i < u; ++i) sum += count(i);
    return sum;
  }
  /// Where matrix u begins in V or M of so many channel panels; `unit` floats hold one row block (capacity *
  /// lanes). A vector of padding after each matrix spreads the points of a tile over the sets of L1: without
  /// it the input transform took 205, 285 and 366 cycles per tile and panel at 128, 256 and 512 channels,
  /// with it 188, 264 and 290.
  static constexpr long start(int u, int panels, long unit, int lanes) {
    return before(u) * panels * unit + long{u} * lanes;
  }
  static constexpr int matrix(int y, int x) { return class_of(y) * 6 + class_of(x); }
  static constexpr int slot(int y, int x) { return slot_of(y) * width(class_of(x)) + slot_of(x); }
};

/// Offsets of the points inside V or M for one channel panel.
template <class P>
class PointOffsets {
 public:
  /// `panels` channel panels, this is number `panel`.
  PointOffsets(int panels, int panel, long unit, int lanes) {
#pragma GCC unroll 9
    for (int y = 0; y < P::kSide; ++y) {
#pragma GCC unroll 9
      for (int x = 0; x < P::kSide; ++x) {
        const int u = P::matrix(y, x);
        at_[y * P::kSide + x] =
            P::start(u, panels, unit, lanes) + (long{P::count(u)} * panel + P::slot(y, x)) * unit;
      }
    }
  }
  long operator()(int y, int x) const {
    return at_[y * P::kSide + x];
  }

 private:
  long at_[P::kSide * P::kSide];
};

/// One point per matrix: a constant stride, which needs no table.
template <>
class PointOffsets<Points<6>> {
 public:
  PointOffsets(int panels, int panel, long unit, int lanes)
      : first_(panel * unit), step_(panels * unit + lanes) {}
  long operator()(int y, int x) const { return first_ + (y * 6 + x) * step_; }

 private:
  long first_, step_;
};

/// Tiles of a batch, numbered image by image and row by row.
struct TileGrid {
  int rows, cols;  // tiles per image
  long per_image() const { return long{rows} * cols; }
};

/// Walks the tiles from a given one on without a division per tile.
class TileCursor {
 public:
  TileCursor(const TileGrid& grid, long tile) : grid_(grid) {
    image = tile / grid.per_image();
    const long rest = tile % grid.per_image();
    row = static_cast<int>(rest / grid.cols);
    col = static_cast<int>(rest % grid.cols);
  }
  void next() {
    if (++col == grid_.cols) {
      col = 0;
      if (++row == grid_.rows) {
        row = 0;
        ++image;
      }
    }
  }
  long image;
  int row, col;

 private:
  TileGrid grid_;
};

/// A batch of images in panels.
struct Images {
  int height, width, panels;
};

/// Transforms the patches of tiles [t0, t1) into rows [t0 - base, t1 - base) of V. A patch is Map::kIn pixels
/// square, starts at kStep * tile - kPad, and is zero outside the image.
template <class V, class Map, class P, int kStep, int kPad>
void transform_in(const Images& image, const TileGrid& grid, const float* x, long t0, long t1, long base,
                  long capacity, float* v) {
  constexpr int L = V::kLanes, W = V::kWords;
  constexpr int kIn = Map::kIn;
  const long row_stride = long{image.width} * L, plane = image.height * row_stride;
  alignas(64) static constexpr float kZero[L] = {};
  const auto zero = reinterpret_cast<std::uintptr_t>(kZero);
  for (int panel = 0; panel < image.panels; ++panel) {
    const PointOffsets<P> offset(image.panels, panel, capacity * W, L);
    TileCursor tile(grid, t0);
    for (long t = t0; t < t1; ++t, tile.next()) {
      const int y0 = tile.row * kStep - kPad, x0 = tile.col * kStep - kPad;
      const float* plane_start = x + (tile.image * image.panels + panel) * plane;
      float* into = v + (t - base) * W;
      const auto store = [&](int r, const typename V::Reg* row) {
#pragma GCC unroll 9
        for (int c = 0; c < Map::kOut; ++c) V::store_words(into + offset(r, c), row[c]);
      };
      if (y0 >= 0 && x0 >= 0 && y0 + kIn <= image.height && x0 + kIn <= image.width) {
        const float* source = plane_start + y0 * row_stride + x0 * L;
        separable<V, Map>([&](int r, int c) { return V::load(source + r * row_stride + c * L); }, store);
        continue;
      }
      // Pixels outside are read from a vector of zeros, chosen by arithmetic rather than by branches: most
      // tiles of small images lie on a border.
      std::uintptr_t row_in[kIn], col_in[kIn];
#pragma GCC unroll 9
      for (int i = 0; i < kIn; ++i) {
        row_in[i] = -static_cast<std::uintptr_t>(y0 + i >= 0 && y0 + i < image.height);
        col_in[i] = -static_cast<std::uintptr_t>(x0 + i >= 0 && x0 + i < image.width);
      }
      const auto source = reinterpret_cast<std::uintptr_t>(plane_start);
      separable<V, Map>(
          [&](int r, int c) {
            const auto at = source + static_cast<std::uintptr_t>(((y0 + r) * row_stride + (x0 + c) * L) *
                                                                 static_cast<long>(sizeof(float)));
            return V::load(reinterpret_cast<const float*>(zero + ((at - zero) & row_in[r] & col_in[c])));
          },
          store);
    }
  }
}

/// Copies 4x4 pixels per tile as they are into row block `slot` = 4 * row + col of a single matrix
/// [panels][16 * capacity][L]: what the 1x1 shortcut's gradient needs.
template <class V>
void copy_in(const Images& image, const TileGrid& grid, const float* x, long t0, long t1, long base,
             long capacity, float* v) {
  constexpr int L = V::kLanes;
  const long row_stride = long{image.width} * L, plane = image.height * row_stride;
  for (int panel = 0; panel < image.panels; ++panel) {
    TileCursor tile(grid, t0);
    for (long t = t0; t < t1; ++t, tile.next()) {
      const float* source = x + (tile.image * image.panels + panel) * plane;
      for (int i = 0; i < 16; ++i) {
        const int r = tile.row * 4 + i / 4, c = tile.col * 4 + i % 4;
        const bool inside = r < image.height && c < image.width;
        V::store_words(v + ((long{panel} * 16 + i) * capacity + t - base) * V::kWords,
                       inside ? V::load(source + r * row_stride + c * L) : V::zero());
      }
    }
  }
}

/// Transforms rows [t0 - base, t1 - base) of M, which holds m_panels channel panels, to kOut x kOut pixels
/// per tile, and stores panels [first, first + m_panels) of y.
template <class V, class Map, class P, int kFlags>
void transform_out(const Images& image, const TileGrid& grid, const float* m, int m_panels, int first,
                   long t0, long t1, long base, long capacity, const Epilogue& epilogue, float* y) {
  constexpr int L = V::kLanes;
  constexpr int kOut = Map::kOut;
  const Finish<V, kFlags> finish(epilogue, y);
  for (int p = 0; p < m_panels; ++p) {
    const PointOffsets<P> offset(m_panels, p, capacity * L, L);
    const auto channel = finish.channel((first + p) * L);
    TileCursor tile(grid, t0);
    for (long t = t0; t < t1; ++t, tile.next()) {
      const int y0 = tile.row * kOut, x0 = tile.col * kOut;
      const long at = ((tile.image * image.panels + first + p) * image.height + y0) * image.width + x0;
      const float* from = m + (t - base) * L;
      const auto load = [&](int r, int c) { return V::load(from + offset(r, c)); };
      if (y0 + kOut <= image.height && x0 + kOut <= image.width) {
        separable<V, Map>(load, [&](int r, const typename V::Reg* row) {
          finish.template store_row<kOut>(row, channel, at + long{r} * image.width);
        });
      } else {
        const int rows = image.height - y0, cols = image.width - x0;
        separable<V, Map>(load, [&](int r, const typename V::Reg* row) {
#pragma GCC unroll 8
          for (int c = 0; c < kOut; ++c) {
            if (r < rows && c < cols) finish.store(row[c], channel, at + long{r} * image.width + c);
          }
        });
      }
    }
  }
}

/// Stores what copy_in's layout holds after a product: 4x4 pixels per tile, plus bias.
template <class V>
void copy_out(const Images& image, const TileGrid& grid, const float* m, int m_panels, int first, long t0,
              long t1, long base, long capacity, const float* bias, float* y) {
  constexpr int L = V::kLanes;
  const long row_stride = long{image.width} * L, plane = image.height * row_stride;
  for (int p = 0; p < m_panels; ++p) {
    const auto shift = bias != nullptr ? V::load(bias + (first + p) * L) : V::zero();
    TileCursor tile(grid, t0);
    for (long t = t0; t < t1; ++t, tile.next()) {
      float* into = y + (tile.image * image.panels + first + p) * plane;
      for (int i = 0; i < 16; ++i) {
        const int r = tile.row * 4 + i / 4, c = tile.col * 4 + i % 4;
        if (r >= image.height || c >= image.width) continue;
        V::store(into + r * row_stride + c * L,
                 V::add(shift, V::load(m + ((long{p} * 16 + i) * capacity + t - base) * L)));
      }
    }
  }
}

/// A block of tiles between its two transforms.
template <class V, class P>
struct Block {
  static constexpr int L = V::kLanes, W = V::kWords;
  long rows, capacity;       // tiles in use, tiles that the layout has room for
  int k_panels, out_panels;  // of the weights
  int m_panels;              // output panels that M holds

  /// Row blocks of M (of V) that belong to one matrix begin at this multiple of `panels`.
  long unit() const { return capacity * L; }
  long v_unit() const { return capacity * W; }
  /// Rows of a matrix that hold `count` points; rows between `rows` and `capacity` are computed, never read.
  int used(int count) const { return static_cast<int>((count - 1) * capacity + rows); }
  /// Where matrix u begins in M; u = 36 is the shortcut's own product.
  long m_offset(int u) const { return P::start(u, m_panels, unit(), L); }

  /// M of matrix u = V * U panels [n, n + panels).
  void multiply(const float* v, const float* weights, float* m, int u, int n, int panels) const {
    const long matrix_floats = weight_matrix(k_panels * W, out_panels * L), count = P::count(u);
    const float* b = weights + u * matrix_floats + long{n} * k_panels * W * L;
    product<V, false>(v + P::start(u, k_panels, v_unit(), L), count * v_unit(), used(count), b, k_panels,
                      panels, m + m_offset(u), count * unit(), u + 1 < P::kMatrices ? b + matrix_floats : b);
  }
};

/// Tiles at a time whose products are summed while their weights are made, see multiply_taps.
inline constexpr int kTapRows = 4;
/// Input channels that multiply_taps takes at a time: their taps stay in L1 while the points come by.
inline constexpr int kTapChannels = 32;

/// Sums of kPoints neighbouring points of row kY, beginning with kX, for kRows tiles: the weights of a pair
/// of channels are made from its nine taps in registers and used at once. `a` and `c` belong to the first of
/// the points, the next ones are a_matrix and c_matrix floats on.
template <class V, int kY, int kX, int kPoints, int kRows>
[[gnu::noinline]] void tap_tile(const float* a, long a_panel, long a_matrix, const float* taps, int k_panels,
                                float* c, long c_matrix, const float* prefetch, bool add) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes;
  Reg sum[kPoints][kRows];
#pragma GCC unroll 6
  for (int p = 0; p < kPoints; ++p) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[p][r] = add ? V::load(c + p * c_matrix + r * L) : V::zero();
  }
  for (int panel = 0; panel < k_panels; ++panel, a += a_panel) {
    for (int k = 0; k < L; ++k, taps += 9 * L, prefetch += 2 * L) {
      __builtin_prefetch(prefetch, 0, 2);
      __builtin_prefetch(prefetch + L, 0, 2);
      Reg half[3], row[6];
#pragma GCC unroll 3
      for (int x = 0; x < 3; ++x) {
        const Reg column[3] = {V::load(taps + x * L), V::load(taps + (3 + x) * L),
                               V::load(taps + (6 + x) * L)};
        Reg points[6];
        F43Filter::apply<V>(column, 1, points, 1);
        half[x] = points[kY];
      }
      F43Filter::apply<V>(half, 1, row, 1);
#pragma GCC unroll 6
      for (int p = 0; p < kPoints; ++p) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          sum[p][r] = V::fma(V::broadcast(a + p * a_matrix + r * L + k), row[kX + p], sum[p][r]);
        }
      }
    }
  }
#pragma GCC unroll 6
  for (int p = 0; p < kPoints; ++p) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) V::store(c + p * c_matrix + r * L, sum[p][r]);
  }
}

/// Calls body.template operator()<i>() for i = 0 .. kCount - 1.
template <int kCount, class Body>
void for_constants(const Body& body) {
  [&]<int... kI>(std::integer_sequence<int, kI...>) {
    (body.template operator()<kI>(), ...);
  }
  (std::make_integer_sequence<int, kCount>());
}

/// Products of a block of very few tiles with weights that are still taps, stride 1. The 36 matrices are
/// never written down: to store and read them again took 400 cycles per vector of taps, to make their parts
/// anew for every row of points takes 100 (Zen 4). Every sum has the same order as with transformed weights,
/// so the result has the same bits.
template <class V>
void multiply_taps(const Block<V, Points<6>>& block, const float* taps, const Schedule& schedule, int n,
                   int panels) {
  using P = Points<6>;
  constexpr int L = V::kLanes, kPoints = V::kTapPoints;
  const int channels = block.k_panels * L;
  const long unit = block.unit(), a_matrix = P::start(1, block.k_panels, unit, L),
             c_matrix = block.m_offset(1);
  for (int p = 0; p < panels; ++p) {
    for (int k0 = 0; k0 < channels; k0 += kTapChannels) {
      const int count = std::min(channels - k0, kTapChannels);
      const float* from = taps + (long{n + p} * channels + k0) * 9 * L;
      for_constants<6 * 6 / kPoints>([&]<int kI>() {
        constexpr int kY = kI * kPoints / 6, kX = kI * kPoints % 6, kMatrix = 6 * kY + kX;
        for (long row = 0; row < block.rows; row += kTapRows) {
          const float* a = schedule.v + kMatrix * a_matrix + k0 / L * unit + row * L;
          float* c = schedule.m + kMatrix * c_matrix + p * unit + row * L;
          // What follows these taps comes a sixth (or less) at a time.
          const float* next = from + long{count} * L * (9 + 2 * std::min(kI, 4));
          const auto run = [&]<int kRows>() {
            tap_tile<V, kY, kX, kPoints, kRows>(a, unit, a_matrix, from, count / L, c, c_matrix, next,
                                                k0 > 0);
          };
          switch (std::min<long>(block.rows - row, kTapRows)) {
            case 1:
              run.template operator()<1>();
              break;
            case 2:
              run.template operator()<2>();
              break;
            case 3:
              run.template operator()<3>();
              break;
            default:
              run.template operator()<4>();
          }
        }
      });
    }
  }
}

/// The common way of all convolutions.
///   in(t0, t1, base, capacity): transforms tiles into schedule.v.
///   extra(block, n, panels): a product besides the 36, run after that of matrix 0.
///   out(t0, t1, base, capacity, m_panels, first): transforms M to output panels from `first` on.
template <class V, class P, class In, class Extra, class Out>
void run_tiles(long tiles, int k_panels, int out_panels, const float* u, bool taps, const Schedule& schedule,
               const Team& team, const In& in, const Extra& extra, const Out& out) {
  // Groups of output panels [n0, n1) of the tiles that V holds: products, then the output transform.
  const auto finish = [&](long t, long end, long capacity, int n0, int n1) {
    for (int n = n0; n < n1; n += schedule.group) {
      const int panels = n1 - n < schedule.group ? n1 - n : schedule.group;
      const Block<V, P> block{end - t, capacity, k_panels, out_panels, panels};
      if constexpr (P::kSide == 6 && V::kWords == V::kLanes) {
        if (taps) multiply_taps<V>(block, u, schedule, n, panels);
      }
      for (int matrix = 0; matrix < P::kMatrices; ++matrix) {
        if (!taps) block.multiply(schedule.v, u, schedule.m, matrix, n, panels);
        if (matrix == 0) extra(block, n, panels);
      }
      out(t, end, t, capacity, panels, n);
    }
  };
  // Tiles are taken in equal blocks. Capacity is odd: rows a power of two apart would share cache sets.
  const long blocks = (tiles + schedule.block - 1) / schedule.block;
  const auto span = [&](long b) { return std::pair{tiles * b / blocks, tiles * (b + 1) / blocks}; };
  if (!schedule.shared) {
    team.deal(blocks, [&](long b) {
      const auto [t, end] = span(b);
      const long capacity = (end - t) | 1;
      in(t, end, t, capacity);
      finish(t, end, capacity, 0, out_panels);
    });
    return;
  }
  for (long b = 0; b < blocks; ++b) {
    const auto [t, end] = span(b);
    const long rows = end - t, capacity = rows | 1, pieces = std::min<long>(rows, 4L * team.size);
    const long first = t;
    team.deal(pieces, [&](long piece) {
      in(first + rows * piece / pieces, first + rows * (piece + 1) / pieces, first, capacity);
    });
    team.sync();
    // At least two groups for each thread, if there are so many panels.
    const int most = std::max(1, out_panels / (2 * team.size)), group = std::min(schedule.group, most);
    team.deal((out_panels + group - 1) / group, [&, last = end](long item) {
      const int n = static_cast<int>(item) * group;
      finish(first, last, capacity, n, std::min(n + group, out_panels));
    });
    team.sync();
  }
}

/// How to cut a convolution. Where the weights about fit L2, small blocks keep V and M there beside them;
/// where they stream from L3, a block should use them for as many tiles as a chunk has, and several panels of
/// M at a time read V less often. Measured on 2 MB of L2, AVX-512, share of the multiply-adds' peak: 64
/// channels 68 % with blocks of 28 against 64 % with 56; 256 channels 77 % with 64 and groups of 8 against 67
/// % with 28 and 4.
template <class V>
Schedule winograd_cut(const Layer& layer, std::size_t l2_bytes) {
  const bool streams =
      winograd_weight_floats(layer.in, layer.out, 3, layer.gradient) * sizeof(float) > l2_bytes * 3 / 2;
  const int panels = layer.out / V::kLanes;
  Schedule s;
  s.block = (streams ? 64 : 28) / layer.stride;
  s.group = std::min(streams ? 8 : 4, panels + panels % 2);
  return s;
}

template <class V>
Space winograd_space(const Layer& layer, const Schedule& schedule) {
  return {v_floats(schedule.block, layer.in, layer.stride), m_floats(schedule, V::kLanes, layer.stride)};
}

inline constexpr int tiles_of(int pixels) {
  return (pixels + 3) / 4;
}

/// 3x3, stride 1, forward or data gradient.
template <class V, class Input = F43Input, class Output = F43Output>
void conv(const ConvJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  using P = Points<6>;
  const TileGrid grid{tiles_of(job.height), tiles_of(job.width)};
  const Images x{job.height, job.width, job.in / L}, y{job.height, job.width, job.out / L};
  const Schedule& s = job.schedule;
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    run_tiles<V, P>(
        job.images * grid.per_image(), x.panels, y.panels, job.u, job.taps, s, team,
        [&](long t0, long t1, long base, long capacity) {
          transform_in<V, Input, P, 4, 1>(x, grid, job.x, t0, t1, base, capacity, s.v);
        },
        [](const Block<V, P>&, int, int) {},
        [&](long t0, long t1, long base, long capacity, int panels, int first) {
          transform_out<V, Output, P, kFlags>(y, grid, s.m, panels, first, t0, t1, base, capacity,
                                              job.epilogue, job.y);
        });
  });
}

/// 3x3, stride 2, with the 1x1 shortcut, which reads the 16 points of matrix 0: the even pixels.
template <class V>
void down(const DownJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  using P = Points<9>;
  const Images x{job.height, job.width, job.in / L};
  const Images y{(job.height + 1) / 2, (job.width + 1) / 2, job.out / L};
  const TileGrid grid{tiles_of(y.height), tiles_of(y.width)};
  const Schedule& s = job.schedule;
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    run_tiles<V, P>(
        job.images * grid.per_image(), x.panels, y.panels, job.u, false, s, team,
        [&](long t0, long t1, long base, long capacity) {
          transform_in<V, PolyInput, P, 8, 1>(x, grid, job.x, t0, t1, base, capacity, s.v);
        },
        [&](const Block<V, P>& block, int n, int panels) {
          const float* b = job.u_shortcut + long{n} * x.panels * V::kWords * L;
          product<V, false>(s.v, 16 * block.v_unit(), block.used(16), b, x.panels, panels,
                            s.m + block.m_offset(36), 16 * block.unit(), b);
        },
        [&](long t0, long t1, long base, long capacity, int panels, int first) {
          transform_out<V, PolyOutput, P, kFlags>(y, grid, s.m, panels, first, t0, t1, base, capacity,
                                                  job.epilogue, job.y);
          copy_out<V>(y, grid, s.m + P::start(36, panels, capacity * L, L), panels, first, t0, t1, base,
                      capacity, job.shortcut_bias, job.shortcut);
        });
  });
}

/// Data gradient of `down`; the shortcut's gradient is added to the even pixels' product.
template <class V>
void down_grad(const DownGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  using P = Points<9>;
  const Images g{(job.height + 1) / 2, (job.width + 1) / 2, job.out / L};
  const Images dx{job.height, job.width, job.in / L};
  const TileGrid grid{tiles_of(g.height), tiles_of(g.width)};
  const Schedule& s = job.schedule;
  const auto shortcut = [&](long capacity) { return s.v + P::start(36, g.panels, capacity * V::kWords, L); };
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    run_tiles<V, P>(
        job.images * grid.per_image(), g.panels, dx.panels, job.u, false, s, team,
        [&](long t0, long t1, long base, long capacity) {
          transform_in<V, PolyGradInput, P, 4, 0>(g, grid, job.g, t0, t1, base, capacity, s.v);
          copy_in<V>(g, grid, job.g_shortcut, t0, t1, base, capacity, shortcut(capacity));
        },
        [&](const Block<V, P>& block, int n, int panels) {
          const float* b = job.u_shortcut + long{n} * g.panels * V::kWords * L;
          product<V, true>(shortcut(block.capacity), 16 * block.v_unit(), block.used(16), b, g.panels, panels,
                           s.m + block.m_offset(0), 16 * block.unit(), b);
        },
        [&](long t0, long t1, long base, long capacity, int panels, int first) {
          transform_out<V, PolyGradOutput, P, kFlags>(dx, grid, s.m, panels, first, t0, t1, base, capacity,
                                                      job.epilogue, job.dx);
        });
  });
}

}  // namespace
}  // namespace ebclr::cpu
