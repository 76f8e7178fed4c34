#pragma once
// The first convolution: few input channels, so it runs directly on planar images with a zero border. Windows
// of 3x3 (stride 1), 7x7 (stride 2, with max pooling after it) and 4x4 (stride 4), see StemShape.

#include "cpu/epilogue.h"
#include "cpu/gemm.h"
#include "cpu/kernels.h"

namespace ebclr::cpu {
namespace {

/// Calls body.template operator()<kernel, stride>() with the window's size as constants.
template <class Body>
void with_window(const StemShape& shape, const Body& body) {
  switch (shape.kernel) {
    case 3:
      return body.template operator()<3, 1>();
    case 4:
      return body.template operator()<4, 4>();
    case 7:
      return body.template operator()<7, 2>();
    default:
      __builtin_trap();  // a window that no stem has
  }
}

/// Forward: panels [out/L][k * k * in][L], row (channel, ky, kx). Then the data gradient: panels
/// [columns/L][out][L], column (ky, kx, channel) with kx padded to a multiple of 4 and channels to 4, so that
/// what one output gives to a row of the image lies side by side.
template <class V>
void stem_weights(const StemShape& shape, const float* w, int out, int in, int out_padded, const float* scale,
                  float* packed) {
  constexpr int L = V::kLanes;
  const int kernel = shape.kernel, k_count = kernel * kernel * in, columns = stem_columns(shape);
  float* back = packed + long{k_count} * out_padded;
  for (long i = 0; i < long{out_padded} * (k_count + columns); ++i) packed[i] = 0;
  for (int o = 0; o < out; ++o) {
    for (int k = 0; k < k_count; ++k) {
      const float value = w[long{o} * k_count + k] * (scale != nullptr ? scale[o] : 1.f);
      packed[(long{o / L} * k_count + k) * L + o % L] = value;
      const int c = k / (kernel * kernel), ky = k / kernel % kernel, kx = k % kernel;
      const int column = (ky * columns / kernel) + 4 * kx + c;
      back[(long{column / L} * out_padded + o) * L + column % L] = value;
    }
  }
}

/// Copies rows [y0, y1) of one image [in][height][width], counted with the border, into a frame of zeros
/// [in][height + 2 pad][stride].
inline void stem_frame(const StemShape& shape, const float* x, int in, int height, int width, long stride,
                       int y0, int y1, float* frame) {
  const int pad = shape.pad;
  for (int c = 0; c < in; ++c) {
    for (int y = y0; y < y1; ++y) {
      float* row = frame + (long{c} * (height + 2 * pad) + y) * stride;
      for (long i = 0; i < stride; ++i) row[i] = 0;
      if (y < pad || y >= height + pad) continue;
      const float* from = x + (long{c} * height + y - pad) * width;
      for (int i = 0; i < width; ++i) row[pad + i] = from[i];
    }
  }
}

/// kRows neighbouring pixels x kVecs vectors of channels.
template <class V, int kKernel, int kStride, int kRows, int kVecs, int kFlags>
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
  const long w_panel = long{kKernel * kKernel} * in * L;
  for (int c = 0; c < in; ++c) {
    for (int ky = 0; ky < kKernel; ++ky) {
      const float* a = frame + c * plane + ky * stride;
#pragma GCC unroll 7
      for (int kx = 0; kx < kKernel; ++kx, w += L) {
        Reg column[kVecs];
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) column[v] = V::load(w + v * w_panel);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const Reg x = V::broadcast(a + kx + i * kStride);
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

/// One row of the result.
template <class V, int kKernel, int kStride, int kFlags>
void stem_row(const StemJob& job, const Finish<V, kFlags>& finish, const float* frame, long plane,
              long stride, long n, int y) {
  constexpr int L = V::kLanes;
  constexpr int kWide = V::kRows == 14 ? 8 : 4;  // pixels per tile; image widths are seldom multiples of 14
  const int width = job.shape.out(job.width), panels = job.out / L;
  const long y_plane = long{job.shape.out(job.height)} * width;  // in vectors
  for (int p = 0; p < panels; p += 2) {
    const float* w = job.w + long{p} * kKernel * kKernel * job.in * L;
    const bool two = p + 1 < panels;
    for (int x = 0; x < width;) {
      const long at = (n * panels + p) * y_plane + long{y} * width + x;
      const float* from = frame + y * kStride * stride + x * kStride;
      const bool wide = x + kWide <= width;
      const auto run = [&]<int kRows, int kVecs>() {
        stem_tile<V, kKernel, kStride, kRows, kVecs, kFlags>(from, plane, stride, job.in, w, finish, p * L,
                                                             at, y_plane);
      };
      if (wide) {
        two ? run.template operator()<kWide, 2>() : run.template operator()<kWide, 1>();
      } else {
        two ? run.template operator()<1, 2>() : run.template operator()<1, 1>();
      }
      x += wide ? kWide : 1;
    }
  }
}

/// Forward. Threads share the rows of all images, so that one image is enough for all of them.
template <class V>
void stem(const StemJob& job, const Team& team) {
  const int height = job.shape.out(job.height), border = 2 * job.shape.pad;
  const long stride = job.width + border + V::kLanes, plane = (job.height + border) * stride;
  const long rows = long{job.images} * height;
  with_window(job.shape, [&]<int kKernel, int kStride>() {
    with_flags<V>(job.epilogue, [&]<int kFlags>() {
      const Finish<V, kFlags> finish(job.epilogue, job.y);
      for (long row = team.begin(rows); row < team.end(rows);) {
        const long n = row / height;
        const auto y0 = static_cast<int>(row - n * height);
        const auto y1 =
            static_cast<int>(team.end(rows) - n * height < height ? team.end(rows) - n * height : height);
        stem_frame(job.shape, job.x + n * job.in * job.height * job.width, job.in, job.height, job.width,
                   stride, y0 * kStride, (y1 - 1) * kStride + kKernel, job.scratch);
        for (int y = y0; y < y1; ++y) {
          stem_row<V, kKernel, kStride, kFlags>(job, finish, job.scratch, plane, stride, n, y);
        }
        row += y1 - y0;
      }
    });
  });
}

/// Max pooling, 3x3 with stride 2 and padding 1, then the epilogue; threads share the rows. For the way back
/// `origin` says which of the nine pixels each value came from: the first of equal ones, as torch takes it.
template <class V>
void max_pool(const MaxPoolJob& job, const Team& team) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes;
  const int height = (job.height + 1) / 2, width = (job.width + 1) / 2, panels = job.channels / L;
  const long rows = long{job.images} * panels * height;
  with_flags<V>(job.epilogue, [&]<int kFlags>() {
    const Finish<V, kFlags> finish(job.epilogue, job.y);
    for (long row = team.begin(rows); row < team.end(rows); ++row) {
      const long plane = row / height;
      const auto y = static_cast<int>(row % height);
      const float* from = job.x + plane * job.height * job.width * L;
      const Reg bias = finish.channel(static_cast<int>(plane % panels) * L);
      const int r0 = y == 0 ? 1 : 0, r1 = 2 * y + 2 > job.height ? 2 : 3;
      for (int x = 0; x < width; ++x) {
        const int c0 = x == 0 ? 1 : 0, c1 = 2 * x + 2 > job.width ? 2 : 3;
        Reg which = V::set1(static_cast<float>(3 * r0 + c0));
        Reg most = V::load(from + (long{2 * y + r0 - 1} * job.width + 2 * x + c0 - 1) * L);
        for (int r = r0; r < r1; ++r) {
          for (int c = c0; c < c1; ++c) {
            const Reg value = V::load(from + (long{2 * y + r - 1} * job.width + 2 * x + c - 1) * L);
            which =
                V::select(V::positive(V::sub(value, most)), V::set1(static_cast<float>(3 * r + c)), which);
            most = V::max(most, value);
          }
        }
        finish.store(most, bias, row * width + x);
        if (job.origin != nullptr) V::store(job.origin + (row * width + x) * L, which);
      }
    }
  });
}

/// The way back from pooling, for planes [first, last) of the batch: each gradient goes to the pixel that its
/// value came from.
template <class V>
void max_pool_planes(const MaxPoolJob& job, long first, long last, float* dx) {
  constexpr int L = V::kLanes;
  const int height = (job.height + 1) / 2, width = (job.width + 1) / 2;
  for (long plane = first; plane < last; ++plane, dx += long{job.height} * job.width * L) {
    for (long i = 0; i < long{job.height} * job.width; ++i) V::store(dx + i * L, V::zero());
    for (int y = 0; y < height; ++y) {
      const int r0 = y == 0 ? 1 : 0, r1 = 2 * y + 2 > job.height ? 2 : 3;
      for (int x = 0; x < width; ++x) {
        const int c0 = x == 0 ? 1 : 0, c1 = 2 * x + 2 > job.width ? 2 : 3;
        const long at = (plane * height + y) * width + x;
        const auto g = V::load(job.g + at * L), which = V::load(job.origin + at * L);
        for (int r = r0; r < r1; ++r) {
          for (int c = c0; c < c1; ++c) {
            float* into = dx + (long{2 * y + r - 1} * job.width + 2 * x + c - 1) * L;
            const auto mine = V::equal(which, V::set1(static_cast<float>(3 * r + c)));
            V::store(into, V::add(V::load(into), V::select(mine, g, V::zero())));
          }
        }
      }
    }
  }
}

template <class V>
void max_pool_grad(const MaxPoolJob& job, const Team& team) {
  const long planes = long{job.images} * (job.channels / V::kLanes);
  const long first = team.begin(planes);
  max_pool_planes<V>(job, first, team.end(planes), job.dx + first * job.height * job.width * V::kLanes);
}

/// Gradient of one image's convolution; where pooling follows, made from that of the pooled values.
template <class V>
const float* stem_gradient(const StemGradJob& job, long n) {
  const int height = job.shape.out(job.height), width = job.shape.out(job.width);
  if (job.origin == nullptr) return job.g + n * job.out * height * width;
  const int panels = job.out / V::kLanes;
  max_pool_planes<V>({.height = height, .width = width, .g = job.g, .origin = job.origin, .epilogue = {}},
                     n * panels, (n + 1) * panels, job.raw);
  return job.raw;
}

/// Gradient to the image: one product per row gives what each of its pixels owes to every tap; rows of taps
/// are added to an image of 4 interleaved channels. From the last pixel to the first, so that each sum runs
/// over the taps in their order.
template <class V>
void stem_data_grad(const StemGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const StemShape& s = job.shape;
  const int height = s.out(job.height), width = s.out(job.width), columns = stem_columns(s);
  const int vectors = columns / s.kernel / L;  // of one row of taps
  const long unit = long{height} * width * L;
  const long stride = stem_image_stride(s, job.width);
  const float* w = job.w + long{s.kernel * s.kernel} * job.in * job.out;
  float* share = job.scratch;                    // [columns/L][width][L]
  float* image = share + long{columns} * width;  // [height + 2 pad][stride], 4 channels per pixel
  for (long n = team.begin(job.images); n < team.end(job.images); ++n) {
    for (long i = 0; i < (job.height + 2 * s.pad) * stride; ++i) image[i] = 0;
    const float* g = stem_gradient<V>(job, n);
    for (int y = height - 1; y >= 0; --y) {
      product<V, false>(g + long{y} * width * L, unit, width, w, job.out / L, columns / L, share,
                        long{width} * L, w);
      for (int x = width - 1; x >= 0; --x) {
        const float* from = share + long{x} * L;
        for (int ky = 0; ky < s.kernel; ++ky) {
          float* into = image + (y * s.stride + ky) * stride + 4L * x * s.stride;
          for (int v = 0; v < vectors; ++v, from += long{width} * L) {
            V::storeu(into + v * L, V::add(V::loadu(into + v * L), V::load(from)));
          }
        }
      }
    }
    for (int c = 0; c < job.in; ++c) {
      for (int y = 0; y < job.height; ++y) {
        const float* row = image + (y + s.pad) * stride + 4L * s.pad + c;
        float* dx = job.dx + ((n * job.in + c) * job.height + y) * job.width;
        for (int x = 0; x < job.width; ++x) dx[x] = row[4L * x];
      }
    }
  }
}

/// Sums of one row of the result's gradient: kTapRows rows of taps at a time, for enough sums to keep the
/// multipliers busy.
template <class V, int kKernel, int kStride, int kTapRows>
[[gnu::always_inline]] inline void stem_tap_sums(const float* frame, long stride, const float* g, int width,
                                                 float* into) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes, kTaps = kTapRows * kKernel;
  Reg sum[kTaps];
#pragma GCC unroll 16
  for (int k = 0; k < kTaps; ++k) sum[k] = V::load(into + k * L);
  for (int x = 0; x < width; ++x) {
    const Reg column = V::load(g + long{x} * L);
#pragma GCC unroll 16
    for (int k = 0; k < kTaps; ++k) {
      sum[k] =
          V::fma(V::broadcast(frame + (k / kKernel) * stride + k % kKernel + x * kStride), column, sum[k]);
    }
  }
#pragma GCC unroll 16
  for (int k = 0; k < kTaps; ++k) V::store(into + k * L, sum[k]);
}

/// Adds one image's share of the weight gradients to `sums`, [out/L][k * k * in + 1][L], the last row the
/// bias.
template <class V, int kKernel, int kStride>
void stem_weight_sums(const StemGradJob& job, long n, float* sums) {
  using Reg = typename V::Reg;
  constexpr int L = V::kLanes, kTapRows = kKernel == 3 ? 3 : kKernel == 4 ? 2 : 1;
  const StemShape& s = job.shape;
  const int height = s.out(job.height), width = s.out(job.width), panels = job.out / L;
  const int rows = kKernel * kKernel * job.in + 1;
  const long stride = job.width + 2 * s.pad + L, plane = (job.height + 2 * s.pad) * stride;
  stem_frame(s, job.x + n * job.in * job.height * job.width, job.in, job.height, job.width, stride, 0,
             job.height + 2 * s.pad, job.scratch);
  const float* gradient = stem_gradient<V>(job, n);
  for (int p = 0; p < panels; ++p) {
    const float* g = gradient + long{p} * height * width * L;
    Reg bias = V::zero();
    for (int y = 0; y < height; ++y) {
      const float* row = g + long{y} * width * L;
      for (int x = 0; x < width; ++x) bias = V::add(bias, V::load(row + long{x} * L));
      for (int c = 0; c < job.in; ++c) {
        for (int ky = 0; ky < kKernel; ky += kTapRows) {
          stem_tap_sums<V, kKernel, kStride, kTapRows>(
              job.scratch + c * plane + (y * kStride + ky) * stride, stride, row, width,
              sums + (long{p} * rows + (c * kKernel + ky) * kKernel) * L);
        }
      }
    }
    float* total = sums + (long{p} * rows + rows - 1) * L;
    V::store(total, V::add(V::load(total), bias));
  }
}

/// Gradient to the weights. Whoever is free sums over the next part of the images; the parts are added in
/// their order.
template <class V>
void stem_weight_grad(const StemGradJob& job, const Team& team) {
  constexpr int L = V::kLanes;
  const int taps = job.shape.kernel * job.shape.kernel * job.in, rows = taps + 1;
  const long part_floats = long{rows} * job.out;
  const int parts = grad_parts(team.asked);
  team.deal(parts, [&](long part) {
    float* sums = job.partial + part * part_floats;
    for (long i = 0; i < part_floats; ++i) sums[i] = 0;
    with_window(job.shape, [&]<int kKernel, int kStride>() {
      for (long n = job.images * part / parts; n < job.images * (part + 1) / parts; ++n) {
        stem_weight_sums<V, kKernel, kStride>(job, n, sums);
      }
    });
  });
  team.sync();
  for (long o = team.begin(job.out_real); o < team.end(job.out_real); ++o) {
    for (int k = 0; k < rows; ++k) {
      float sum = 0;
      for (int part = 0; part < parts; ++part) {
        sum += job.partial[part * part_floats + (o / L * rows + k) * L + o % L];
      }
      if (k < taps) {
        job.dw[o * taps + k] = sum;
      } else if (job.db != nullptr) {
        job.db[o] = sum;
      }
    }
  }
}

}  // namespace
}  // namespace ebclr::cpu
