#pragma once
// Data gradients of 3x3 convolutions on the tile unit: sums of products over shifted planes.
//
// A plane holds, for a band of image rows, one vector of channels per *position* (row, image, column), split
// for amx.h. A gradient is a few sums, each over a few taps: a tap is a plane, read from some row on, times a
// matrix of weights. Since rows are outermost, reading from the next row on is a constant offset, and the
// positions of a band are one long left operand, however small the images are.
//
//   stride 1   planes: the six points of F(4,3) along the row (row_transforms.h), a position is 4 pixels;
//              sums: one per point over the 3 rows of the filter: 18 products per 4 pixels instead of 36
//   stride 2   planes: the gradient, the same one column on, the shortcut's gradient;
//              sums: one for each of the four kinds (row even or odd, column even or odd) of pixels
//
//   g  --in--> planes [plane][in/32][high, low][row, image, column][32]
//              M      [sum][out/16][row, image, column][16]
//   dx <-out-- M, with the residual and the derivative of the activation on the way

#include <algorithm>
#include <span>

#include "cpu/amx.h"
#include "cpu/epilogue.h"
#include "cpu/kernels.h"
#include "cpu/row_transforms.h"

namespace ebclr::cpu {
namespace {

/// What a tap reads, and which of the filter's nine taps (row * 3 + column) it multiplies by; with stride 1
/// the filter's row, its columns being transformed.
struct Tap {
  int plane, row, filter;
};
/// One sum: its taps, and where in M it goes. Weights are those of the shortcut if `shortcut`.
struct Sum {
  std::span<const Tap> taps;
  int m;
  bool add = false, shortcut = false;
};

inline constexpr Tap kPointTaps[6][3] = {
    {{0, 0, 0}, {0, 1, 1}, {0, 2, 2}}, {{1, 0, 0}, {1, 1, 1}, {1, 2, 2}}, {{2, 0, 0}, {2, 1, 1}, {2, 2, 2}},
    {{3, 0, 0}, {3, 1, 1}, {3, 2, 2}}, {{4, 0, 0}, {4, 1, 1}, {4, 2, 2}}, {{5, 0, 0}, {5, 1, 1}, {5, 2, 2}}};
inline constexpr Sum kConvSums[] = {{kPointTaps[0], 0}, {kPointTaps[1], 1}, {kPointTaps[2], 2},
                                    {kPointTaps[3], 3}, {kPointTaps[4], 4}, {kPointTaps[5], 5}};

// Planes: gradient, gradient one column on, shortcut's gradient. Pixel 2h + 1 meets tap 2 of result h and tap
// 0 of result h + 1. The transposed weights are flipped, so taps are counted from the other end.
inline constexpr Tap kEvenEven[] = {{0, 0, 8 - 4}}, kEvenOdd[] = {{0, 0, 8 - 5}, {1, 0, 8 - 3}},
                     kOddEven[] = {{0, 0, 8 - 7}, {0, 1, 8 - 1}},
                     kOddOdd[] = {{0, 0, 8 - 8}, {1, 0, 8 - 6}, {0, 1, 8 - 2}, {1, 1, 8 - 0}};
inline constexpr Tap kGradShortcutTaps[] = {{2, 0, 0}};
inline constexpr Sum kDownGradSums[] = {
    {kEvenEven, 0}, {kEvenOdd, 1}, {kOddEven, 2}, {kOddOdd, 3}, {kGradShortcutTaps, 0, true, true}};

/// Taps times pairs of panels of one sum: 9 times 256 hold 8192 channels.
inline constexpr int kMostSteps = 9 * 256;

/// Results of a convolution, or groups of four of them, as a grid per image.
struct Grid {
  int images, rows, cols;
};

/// Rows [row, row + rows) of images [image, image + images).
struct Band {
  long image;
  int images, row, rows;
};

/// How many images, or rows of one image, a band of about `target` positions has.
struct BandSize {
  int images, rows;
  BandSize(const Grid& grid, int target)
      : images(std::max(1, target / (grid.rows * grid.cols))),
        rows(images > 1 ? grid.rows : std::clamp(target / grid.cols, 1, grid.rows)) {}
};

/// Calls body(band) for rows [begin, end), counted through all images. Cuts change no result: every sum is in
/// the same order whatever band its position lies in.
template <class Body>
void for_each_band(const Grid& grid, int target, long begin, long end, const Body& body) {
  const BandSize size(grid, target);
  while (begin < end) {
    const long image = begin / grid.rows, left = end - begin;
    const int row = static_cast<int>(begin % grid.rows);
    Band band{image, 1, row, static_cast<int>(std::min<long>({left, grid.rows - row, size.rows}))};
    if (row == 0 && left >= grid.rows && size.rows == grid.rows) {
      band.images = static_cast<int>(std::min<long>(size.images, left / grid.rows));
    }
    body(band);
    begin += long{band.images} * band.rows;
  }
}

constexpr long whole_tiles(long rows) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}
constexpr int pairs_of(int channels) {
  return (channels + kPair - 1) / kPair;
}

/// The planes of a band in memory; `extra` rows more than the band has results. Capacities are odd, because
/// places a power of two apart share a cache set.
struct Planes {
  char* data;
  long line;      // positions of a row: images * columns
  long capacity;  // positions of a piece
  int pairs;      // of channel panels

  Planes(float* v, const Band& band, int cols, int extra, int channels)
      : data(reinterpret_cast<char*>(v)),
        line(long{band.images} * cols),
        capacity(positions(line, band.rows, extra)),
        pairs(pairs_of(channels)) {}

  static long positions(long line, long rows, int extra) {
    return (extra * line + whole_tiles(rows * line)) | 1;
  }
  long low() const { return capacity * kRowBytes; }
  long pair() const { return 2 * low(); }
  long plane() const { return pairs * pair() + kRowBytes; }
  char* at(int plane_index, int pair_index, long position) const {
    return data + plane_index * plane() + pair_index * pair() + position * kRowBytes;
  }
};

/// M of a band for a group of panels.
struct Sums {
  float* data;
  int panels;
  long capacity;
  Sums(float* m, int panels, long positions)
      : data(m), panels(panels), capacity(whole_tiles(positions) | 1) {}
  long panel() const { return capacity * 16; }
  long sum() const { return panels * panel() + 16; }
};

/// Floats of V and M for bands of so many positions.
inline Space plane_space(const Layer& layer, const Schedule& schedule) {
  const bool down = layer.stride == 2;
  const Grid grid = down ? Grid{1, (layer.height + 1) / 2, (layer.width + 1) / 2}
                         : Grid{1, layer.height, (layer.width + 3) / 4};
  const BandSize size(grid, schedule.block);
  const long line = long{size.images} * grid.cols;
  const Band widest{0, size.images, 0, size.rows};
  const Planes planes(nullptr, widest, grid.cols, 2, layer.in);
  const Sums sums(nullptr, schedule.group, size.rows * line);
  return {static_cast<std::size_t>(6 * planes.plane()) / sizeof(float),
          static_cast<std::size_t>((down ? 4 : 6) * sums.sum())};
}

/// Floats of the weights of a layer: 18 matrices of k rows and n columns for stride 1, 9 for stride 2.
inline std::size_t plane_weight_floats(int k, int n) {
  return std::size_t{18} * static_cast<std::size_t>(kPair * pairs_of(k)) * static_cast<std::size_t>(n);
}

/// How to cut a convolution. Where the weights fit L2, bands are small enough that planes and M stay there
/// beside them; where they stream from L3, a band should use them for many positions, and all columns of a
/// sum are taken at once, so that its planes are read once. Measured on 2 MB of L2, one thread, ns per pixel:
/// 128 channels 284 with 128 positions and groups of 2 panels against 301 with 256 and 4; 256 channels 1230
/// with 256 positions and one group against 1350 with groups of 4; 512 channels 4510 against 5650.
inline Schedule plane_cut(const Layer& layer, std::size_t l2_bytes) {
  Schedule s;
  if (plane_weight_floats(layer.in, layer.out) * sizeof(float) > l2_bytes * 3 / 4) {
    s.block = 256;
    s.group = layer.out / 16;
  } else {
    const auto position = static_cast<std::size_t>(6 * kPair * pairs_of(layer.in)) * sizeof(float);
    s.block = std::clamp(static_cast<int>(l2_bytes / 5 / position), 64, 256);
    s.group = std::min(2, layer.out / 16);
  }
  return s;
}

/// The common way of both strides.
///   in(band, planes, begin, end): fills lines [begin, end), a line being one row of one image, of a band
///   that has
///     kExtra rows more than results.
///   out(band, sums, first): takes M to output panels from `first` on.
template <int kExtra, class In, class Out>
void run_bands(const Grid& grid, std::span<const Sum> sums, int in_channels, int out_panels, const float* u,
               const float* u_shortcut, const Schedule& schedule, const Team& team, const In& in,
               const Out& out) {
  const TileUnit unit;
  const auto finish = [&](const Band& band, const Planes& planes, int n0, int n1) {
    const long positions = band.rows * planes.line;
    // Weights of a sum from panel n on: all taps and pairs of a panel lie together, panels after one another.
    const auto weights = [&](std::size_t index, int n) {
      long before = 0;
      for (std::size_t i = 0; i < index; ++i) before += static_cast<long>(sums[i].taps.size());
      const long step = planes.pairs * kStepBytes;
      const char* begin = sums[index].shortcut
                              ? reinterpret_cast<const char*>(u_shortcut)
                              : reinterpret_cast<const char*>(u) + before * out_panels * step;
      return begin + n * static_cast<long>(sums[index].taps.size()) * step;
    };
    for (int n = n0; n < n1; n += schedule.group) {
      const Sums m(schedule.m, std::min(schedule.group, n1 - n), positions);
      for (std::size_t index = 0; index < sums.size(); ++index) {
        const Sum& sum = sums[index];
        long steps[kMostSteps];
        int count = 0;
        for (const Tap& tap : sum.taps) {
          for (int pair = 0; pair < planes.pairs; ++pair) {
            steps[count++] = planes.at(tap.plane, pair, tap.row * planes.line) - planes.data;
          }
        }
        const char* following = index + 1 < sums.size()   ? weights(index + 1, n)
                                : n + schedule.group < n1 ? weights(0, n + schedule.group)
                                                          : weights(0, n0);
        tile_product({planes.data, planes.low(), steps, count}, positions, weights(index, n),
                     count * kStepBytes, m.panels, m.data + sum.m * m.sum(), m.panel(), sum.add, following);
      }
      out(band, m, n);
    }
  };
  const long rows = long{grid.images} * grid.rows;
  for_each_band(grid, schedule.block, schedule.shared ? 0 : team.begin(rows),
                schedule.shared ? rows : team.end(rows), [&](const Band& band) {
                  const Planes planes(schedule.v, band, grid.cols, kExtra, in_channels);
                  const long lines = long{band.rows + kExtra} * band.images;
                  if (schedule.shared) {
                    in(band, planes, team.begin(lines), team.end(lines));
                    team.sync();
                    finish(band, planes, static_cast<int>(team.begin(out_panels)),
                           static_cast<int>(team.end(out_panels)));
                    team.sync();
                  } else {
                    in(band, planes, 0, lines);
                    finish(band, planes, 0, out_panels);
                  }
                });
}

alignas(64) inline constexpr float kNoPixel[16] = {};

/// One row of an image in two neighbouring panels; the second may be missing, and reads as zero.
struct RowPair {
  const float *first, *second;
  /// Row `row` of panel pair `pair`; null pointers outside the image.
  RowPair(const float* x, int panels, int height, int width, long image, int pair, int row) {
    const bool inside = row >= 0 && row < height;
    const long plane = long{height} * width * 16,
               at = (image * panels + 2 * pair) * plane + long{row} * width * 16;
    first = inside ? x + at : nullptr;
    second = inside && 2 * pair + 1 < panels ? x + at + plane : nullptr;
  }
};

/// Writes zeros to `count` rows of 64 bytes, high and low.
inline void clear_rows(char* at, long low, long count) {
  for (long i = 0; i < count; ++i) {
    _mm512_store_si512(at + i * kRowBytes, _mm512_setzero_si512());
    _mm512_store_si512(at + low + i * kRowBytes, _mm512_setzero_si512());
  }
}

/// Stride 1: lines [begin, end) of the six planes; line i is row band.row - 1 + i / images.
inline void point_planes(const float* x, int panels, int height, int width, const Band& band,
                         const Planes& planes, long begin, long end) {
  using V = Avx512;
  const int cols = (width + 3) / 4;
  const long low = planes.low(), step = planes.plane();
  for (int pair = 0; pair < planes.pairs; ++pair) {
    for (long i = begin; i < end; ++i) {
      const RowPair row(x, panels, height, width, band.image + i % band.images, pair,
                        band.row - 1 + static_cast<int>(i / band.images));
      char* at = planes.at(0, pair, i * cols);
      if (row.first == nullptr) {
        for (int point = 0; point < 6; ++point) clear_rows(at + point * step, low, cols);
        continue;
      }
      for (int col = 0; col < cols; ++col, at += kRowBytes) {
        const int x0 = 4 * col - 1;
        V::Reg a[6], b[6], pa[6], pb[6];
        const bool whole = x0 >= 0 && x0 + 6 <= width;
#pragma GCC unroll 6
        for (int k = 0; k < 6; ++k) {
          const bool inside = whole || (x0 + k >= 0 && x0 + k < width);
          const long offset = long{x0 + k} * 16;
          a[k] = V::load(inside ? row.first + offset : kNoPixel);
          b[k] = V::load(inside && row.second != nullptr ? row.second + offset : kNoPixel);
        }
        row_input<V>(a, pa);
        row_input<V>(b, pb);
#pragma GCC unroll 6
        for (int point = 0; point < 6; ++point) store_left(pa[point], pb[point], at + point * step, low);
      }
    }
  }
}

/// M's value of sum `sum` at a position.
[[gnu::always_inline]] inline Avx512::Reg sum_at(const Sums& m, int sum, int panel, long position) {
  return Avx512::load(m.data + sum * m.sum() + panel * m.panel() + position * 16);
}

/// Stride 1.
inline void plane_conv(const ConvJob& job, const Team& team) {
  using V = Avx512;
  const int in_panels = job.in / 16, out_panels = job.out / 16;
  const Grid grid{job.images, job.height, (job.width + 3) / 4};
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    const Finish<V, kFlags> finish(job.epilogue, job.y);
    run_bands<2>(
        grid, kConvSums, job.in, out_panels, job.u, nullptr, job.schedule, team,
        [&](const Band& band, const Planes& planes, long begin, long end) {
          point_planes(job.x, in_panels, job.height, job.width, band, planes, begin, end);
        },
        [&](const Band& band, const Sums& m, int first) {
          for (int p = 0; p < m.panels; ++p) {
            const auto channel = finish.channel((first + p) * 16);
            long position = 0;
            for (int r = 0; r < band.rows; ++r) {
              for (int i = 0; i < band.images; ++i) {
                const long at =
                    (((band.image + i) * out_panels + first + p) * job.height + band.row + r) * job.width;
                for (int col = 0; col < grid.cols; ++col, ++position) {
                  V::Reg sums[6], y[4];
#pragma GCC unroll 6
                  for (int k = 0; k < 6; ++k) sums[k] = sum_at(m, k, p, position);
                  row_output<V>(sums, y);
                  const int count = job.width - 4 * col;
                  if (count >= 4) {
                    finish.template store_row<4>(y, channel, at + 4 * col);
                  } else {
#pragma GCC unroll 4
                    for (int k = 0; k < 4; ++k) {
                      if (k < count) finish.store(y[k], channel, at + 4 * col + k);
                    }
                  }
                }
              }
            }
          }
        });
  });
}

/// Splits one row: place(c, store) calls store with each place that column c of a pair of panels goes to.
template <class Place>
[[gnu::always_inline]] inline void split_row(const RowPair& row, int width, long low, const Place& place) {
  using V = Avx512;
  for (int c = 0; c < width; ++c) {
    const auto a = V::load(row.first + long{c} * 16);
    const auto b = row.second != nullptr ? V::load(row.second + long{c} * 16) : V::zero();
    place(c, [&](char* at) { store_left(a, b, at, low); });
  }
}

/// Gradients of stride 2: line i is row band.row + i / images of the results.
inline void grad_planes(const DownGradJob& job, const Band& band, const Planes& planes, long begin,
                        long end) {
  const int panels = job.out / 16, height = (job.height + 1) / 2, width = (job.width + 1) / 2;
  const long low = planes.low();
  for (int pair = 0; pair < planes.pairs; ++pair) {
    for (long i = begin; i < end; ++i) {
      const int h = static_cast<int>(i / band.images);
      const long image = band.image + i % band.images;
      char* plane[3];
      for (int k = 0; k < 3; ++k) plane[k] = planes.at(k, pair, i * width);
      const RowPair g(job.g, panels, height, width, image, pair, band.row + h);
      if (g.first == nullptr) {
        for (char* at : plane) clear_rows(at, low, width);
        continue;
      }
      clear_rows(plane[1] + (width - 1) * kRowBytes, low, 1);
      split_row(g, width, low, [&](int c, const auto& store) {
        store(plane[0] + c * kRowBytes);
        if (c > 0) store(plane[1] + (c - 1) * kRowBytes);
      });
      if (h == band.rows) continue;
      const RowPair s(job.g_shortcut, panels, height, width, image, pair, band.row + h);
      split_row(s, width, low, [&](int c, const auto& store) { store(plane[2] + c * kRowBytes); });
    }
  }
}

/// Stride 2, with the 1x1 shortcut.
inline void plane_down_grad(const DownGradJob& job, const Team& team) {
  using V = Avx512;
  const int out_panels = job.in / 16;
  const Grid grid{job.images, (job.height + 1) / 2, (job.width + 1) / 2};
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    const Finish<V, kFlags> finish(job.epilogue, job.dx);
    run_bands<1>(
        grid, kDownGradSums, job.out, out_panels, job.u, job.u_shortcut, job.schedule, team,
        [&](const Band& band, const Planes& planes, long begin, long end) {
          grad_planes(job, band, planes, begin, end);
        },
        [&](const Band& band, const Sums& m, int first) {
          for (int p = 0; p < m.panels; ++p) {
            const auto channel = finish.channel((first + p) * 16);
            for (int r = 0; r < 2 * band.rows; ++r) {
              const int y = 2 * band.row + r;
              if (y >= job.height) continue;
              for (int i = 0; i < band.images; ++i) {
                const long at = (((band.image + i) * out_panels + first + p) * job.height + y) * job.width;
                const long position = (long{r / 2} * band.images + i) * grid.cols;
                const int kind = r % 2 * 2;  // even columns; those of odd columns follow
                int c = 0;
                for (; c + 4 <= job.width; c += 4) {
                  V::Reg row[4];
#pragma GCC unroll 4
                  for (int k = 0; k < 4; ++k) row[k] = sum_at(m, kind + k % 2, p, position + (c + k) / 2);
                  finish.template store_row<4>(row, channel, at + c);
                }
                for (; c < job.width; ++c) {
                  finish.store(sum_at(m, kind + c % 2, p, position + c / 2), channel, at + c);
                }
              }
            }
          }
        });
  });
}

}  // namespace
}  // namespace ebclr::cpu
