#pragma once
// The first convolution: few input channels, so it runs directly on planar images with a zero border.

#include "cpu/epilogue.h"
#include "cpu/gemm.h"
#include "cpu/kernels.h"

namespace ebclr::cpu {
namespace {

/// Columns of the data gradient's product: 4 per tap, so that a pixel's channels are adjacent.
template <class V>
constexpr int stem_columns() {
  return (36 + V::kLanes - 1) / V::kLanes * V::kLanes;
}

/// Forward: panels [out/L][9 * in][L], row (channel, ky, kx). Then the data gradient: panels
/// [columns/L][out][L], column 4 * tap + channel.
template <class V>
void stem_weights(const float* w, int out, int in, int out_padded, const float* scale, float* packed) {
  constexpr int L = V::kLanes;
  const int k_count = 9 * in;
  float* back = packed + long{k_count} * out_padded;
  for (long i = 0; i < long{out_padded} * (k_count + stem_columns<V>()); ++i) packed[i] = 0;
  for (int o = 0; o < out; ++o) {
    for (int k = 0; k < k_count; ++k) {
      const float value = w[long{o} * k_count + k] * (scale != nullptr ? scale[o] : 1.f);
      packed[(long{o / L} * k_count + k) * L + o % L] = value;
      const int column = 4 * (k % 9) + k / 9;
      back[(long{column / L} * out_padded + o) * L + column % L] = value;
    }
  }
}

/// Copies one image [in][height][width] into a frame of zeros [in][height + 2][stride].
template <class V>
void stem_frame(const float* x, int in, int height, int width, long stride, float* frame) {
  for (long i = 0; i < long{in} * (height + 2) * stride; ++i) frame[i] = 0;
  for (int c = 0; c < in; ++c) {
    for (int y = 0; y < height; ++y) {
      float* row = frame + (long{c} * (height + 2) + y + 1) * stride + 1;
      for (int i = 0; i < width; ++i) row[i] = x[(long{c} * height + y) * width + i];
    }
  }
}

/// kRows neighbouring pixels x kVecs vectors of channels.
template <class V, int kRows, int kVecs, int kFlags>
[[gnu::noinline]] void stem_tile(const float* frame, long plane, long stride, int in, const float* w,
                                 const Finish<V, kFlags>& finish, int channel, long at, long y_plane) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes;
  Reg sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[i][v] = V::zero();
  }
  const long w_panel = long{9} * in * L;
  for (int c = 0; c < in; ++c) {
    for (int ky = 0; ky < 3; ++ky) {
      const float* a = frame + c * plane + ky * stride;
#pragma GCC unroll 3
      for (int kx = 0; kx < 3; ++kx, w += L) {
        Reg column[kVecs];
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) column[v] = V::load(w + v * w_panel);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const Reg x = V::broadcast(a + kx + i);
#pragma GCC unroll 2
          for (int v = 0; v < kVecs; ++v) sum[i][v] = V::fma(x, column[v], sum[i][v]);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVecs; ++v) {
    const Reg bias = finish.channel(channel + v * L);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) finish.store(sum[i][v], bias, at + v * y_plane + i);
  }
}

/// Forward over this thread's images.
template <class V>
void stem(const StemJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  constexpr int kWide = V::kRows == 14 ? 8 : 4;  // pixels per tile; image widths are seldom multiples of 14
  const long stride = job.width + 2 + L, plane = (job.height + 2) * stride;
  const long y_plane = long{job.height} * job.width;  // in vectors
  const int panels = job.out / L;
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    const Finish<V, kFlags> finish(job.epilogue, job.y);
    for (long n = team.begin(job.images); n < team.end(job.images); ++n) {
      stem_frame<V>(job.x + n * job.in * job.height * job.width, job.in, job.height, job.width, stride,
                    job.scratch);
      for (int p = 0; p < panels; p += 2) {
        const float* w = job.w + long{p} * 9 * job.in * L;
        for (int y = 0; y < job.height; ++y) {
          for (int x = 0; x < job.width;) {
            const long at = (n * panels + p) * y_plane + long{y} * job.width + x;
            const float* frame = job.scratch + y * stride + x;
            const bool wide = x + kWide <= job.width, two = p + 1 < panels;
            if (wide && two) {
              stem_tile<V, kWide, 2, kFlags>(frame, plane, stride, job.in, w, finish, p * L, at, y_plane);
            } else if (wide) {
              stem_tile<V, kWide, 1, kFlags>(frame, plane, stride, job.in, w, finish, p * L, at, y_plane);
            } else if (two) {
              stem_tile<V, 1, 2, kFlags>(frame, plane, stride, job.in, w, finish, p * L, at, y_plane);
            } else {
              stem_tile<V, 1, 1, kFlags>(frame, plane, stride, job.in, w, finish, p * L, at, y_plane);
            }
            x += wide ? kWide : 1;
          }
        }
      }
    }
  });
}

/// Gradient to the image: one product gives each pixel's share for all 9 taps, which are then added up.
template <class V>
void stem_data_grad(const StemGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int pixels = job.height * job.width;
  const long unit = long{pixels} * L;
  const float* w = job.w + long{9} * job.in * job.out;
  float* share = job.scratch;  // [columns/L][pixels][L]
  for (long n = team.begin(job.images); n < team.end(job.images); ++n) {
    product<V, false>(job.g + n * job.out * pixels, unit, pixels, w, job.out / L, stem_columns<V>() / L,
                      share, unit, w);
    float* dx = job.dx + n * job.in * pixels;
    for (int i = 0; i < job.in * pixels; ++i) dx[i] = 0;
    for (int tap = 0; tap < 9; ++tap) {
      // The output at (y, x) read the input at (y + dy, x + dx).
      const int dy = tap / 3 - 1, dx_shift = tap % 3 - 1;
      const int y0 = dy < 0 ? -dy : 0, y1 = dy > 0 ? job.height - dy : job.height;
      const int x0 = dx_shift < 0 ? -dx_shift : 0, x1 = dx_shift > 0 ? job.width - dx_shift : job.width;
      for (int c = 0; c < job.in; ++c) {
        const int column = 4 * tap + c;
        const float* from = share + (column / L) * unit + column % L;
        float* into = dx + long{c} * pixels;
        for (int y = y0; y < y1; ++y) {
          const float* row = from + (long{y} * job.width) * L;
          float* to = into + (y + dy) * job.width + dx_shift;
          for (int x = x0; x < x1; ++x) to[x] += row[long{x} * L];
        }
      }
    }
  }
}

/// Gradient to the weights. Each thread sums over its images; the parts are added in the order of threads.
template <class V>
void stem_weight_grad(const StemGradJob& job, const Team& team) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes;
  const long stride = job.width + 2 + L, plane = (job.height + 2) * stride;
  const long g_plane = long{job.height} * job.width * L;
  const int panels = job.out / L, rows = 9 * job.in + 1;  // the last row is the bias
  float* mine = job.partial + team.id * long{rows} * job.out;
  for (long i = 0; i < long{rows} * job.out; ++i) mine[i] = 0;
  for (long n = team.begin(job.images); n < team.end(job.images); ++n) {
    stem_frame<V>(job.x + n * job.in * job.height * job.width, job.in, job.height, job.width, stride,
                  job.scratch);
    for (int p = 0; p < panels; ++p) {
      const float* g = job.g + (n * panels + p) * g_plane;
      for (int c = 0; c < job.in; ++c) {
        float* into = mine + (long{p} * rows + 9 * c) * L;
        Reg sum[9], bias = V::zero();
#pragma GCC unroll 9
        for (int k = 0; k < 9; ++k) sum[k] = V::load(into + k * L);
        for (int y = 0; y < job.height; ++y) {
          const float* a = job.scratch + c * plane + y * stride;
          const float* row = g + long{y} * job.width * L;
          for (int x = 0; x < job.width; ++x) {
            const Reg column = V::load(row + long{x} * L);
            bias = V::add(bias, column);
#pragma GCC unroll 9
            for (int k = 0; k < 9; ++k) {
              sum[k] = V::fma(V::broadcast(a + (k / 3) * stride + k % 3 + x), column, sum[k]);
            }
          }
        }
#pragma GCC unroll 9
        for (int k = 0; k < 9; ++k) V::store(into + k * L, sum[k]);
        if (c == 0) {
          float* total = mine + (long{p} * rows + rows - 1) * L;
          V::store(total, V::add(V::load(total), bias));
        }
      }
    }
  }
  team.sync();
  for (long o = team.begin(job.out_real); o < team.end(job.out_real); ++o) {
    for (int k = 0; k < rows; ++k) {
      float sum = 0;
      for (int part = 0; part < team.size; ++part) {
        sum += job.partial[part * long{rows} * job.out + (o / L * rows + k) * L + o % L];
      }
      if (k < 9 * job.in) {
        job.dw[o * 9 * job.in + k] = sum;
      } else if (job.db != nullptr) {
        job.db[o] = sum;
      }
    }
  }
}

}  // namespace
}  // namespace ebclr::cpu
