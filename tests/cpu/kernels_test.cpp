// Every kernel of every instruction set against the plain double-precision convolution, over random shapes.

#include "cpu/kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cpu/kernel_fixture.h"
#include "cpu/reference.h"

namespace ebclr::cpu {
namespace {

using namespace testing;
using reference::Shape;

constexpr double kTolerance = 2e-5;
/// Of kernels whose products are of one bfloat16: usually 1e-2, more where few channels are summed.
constexpr double kCoarseTolerance = 3e-2;
constexpr float kSlope = 0.2f;

struct Case {
  Shape shape;
  int threads;
  int block;
  bool shared;
  int group = 2;

  Layer layer(int in, int out, bool gradient) const {
    return {in, out, shape.stride, shape.height, shape.width, gradient};
  }
  std::string text() const {
    return "n " + std::to_string(shape.images) + " in " + std::to_string(shape.in) + " out " +
           std::to_string(shape.out) + " size " + std::to_string(shape.height) + "x" +
           std::to_string(shape.width) + " stride " + std::to_string(shape.stride) + " threads " +
           std::to_string(threads) + " block " + std::to_string(block) + (shared ? " shared" : "") +
           " group " + std::to_string(group);
  }
};

Case random_case(std::mt19937& rng, int stride) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  Case c;
  c.shape = {.images = pick(1, 3),
             .in = 8 * pick(1, 5),
             .out = 8 * pick(1, 5),
             .height = pick(1, 14),
             .width = pick(1, 14),
             .kernel = 3,
             .stride = stride};
  c.threads = pick(1, 3);
  c.block = pick(1, pick(0, 2) > 0 ? 20 : 300);
  c.shared = pick(0, 1) == 1;
  c.group = pick(1, 5);
  return c;
}

/// Runs job on a team; private schedules get their own work space.
template <class Job>
void run(const Case& c, Job job, const Layer& layer, const Kernels& k,
         void (*kernel)(const Job&, const Team&)) {
  const Schedule schedule{.block = c.block, .group = c.group, .shared = c.shared};
  const Space space = k.space(layer, schedule);
  std::vector<Buffer> v, m;
  for (int i = 0; i < c.threads; ++i) {
    v.emplace_back(space.v);
    m.emplace_back(space.m);
    // What the last user left must not matter.
    std::fill_n(v.back().data(), space.v, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(m.back().data(), space.m, std::numeric_limits<float>::quiet_NaN());
  }
  run_team(c.threads, [&](const Team& team) {
    Job mine = job;
    mine.schedule = schedule;
    mine.schedule.v = v[c.shared ? 0 : team.id].data();
    mine.schedule.m = m[team.id].data();
    kernel(mine, team);
  });
}

/// A convolution without an epilogue.
ConvJob plain_job(const Shape& s, int in, int out, const Buffer& x, const Buffer& u, Buffer& y) {
  return {.images = s.images,
          .height = s.height,
          .width = s.width,
          .in = in,
          .out = out,
          .x = x.data(),
          .u = u.data(),
          .y = y.data(),
          .epilogue = {},
          .schedule = {}};
}

class KernelTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k() const { return *GetParam(); }
  int wide(int channels) const { return padded(channels, k().lanes); }
  /// Kernels for chains, which have neither taps nor weight gradients.
  bool coarse() const { return &k() == bf16_kernels(); }
  double tolerance() const { return coarse() ? kCoarseTolerance : kTolerance; }

  Buffer weights(const Shape& s, const Doubles& w, bool transpose, const float* scale = nullptr) const {
    Buffer u(k().weight_floats(wide(s.in), wide(s.out), 3, transpose));
    const std::vector<float> plain = floats(w);
    const WeightJob job{.in = s.in,
                        .out = s.out,
                        .in_padded = wide(s.in),
                        .out_padded = wide(s.out),
                        .stride = s.stride,
                        .transpose = transpose,
                        .w = plain.data(),
                        .scale = scale,
                        .u = u.data()};
    run_team(2, [&](const Team& team) { k().transform_weights(job, team); });
    return u;
  }
  /// The same as taps.
  Buffer taps(const Shape& s, const Doubles& w) const {
    Buffer taps(tap_floats(wide(s.in), wide(s.out)));
    const std::vector<float> plain = floats(w);
    const WeightJob job{.in = s.in,
                        .out = s.out,
                        .in_padded = wide(s.in),
                        .out_padded = wide(s.out),
                        .w = plain.data(),
                        .taps = taps.data()};
    run_team(2, [&](const Team& team) { k().transform_weights(job, team); });
    return taps;
  }
};

TEST_P(KernelTest, ConvolutionWithEveryEpilogue) {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 40; ++trial) {
    const Case c = random_case(rng, 1);
    const Shape& s = c.shape;
    SCOPED_TRACE(c.text());
    const int pixels = s.height * s.width, lanes = k().lanes;
    const Doubles x = random_values(rng, std::size_t(s.images) * s.in * pixels);
    const Doubles w = random_values(rng, std::size_t(s.out) * s.in * 9), b = random_values(rng, s.out);
    const Doubles r = random_values(rng, std::size_t(s.images) * s.out * pixels);
    Doubles want = reference::forward(s, x, w, b);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += r[i];
    const std::vector<std::uint8_t> want_signs = to_signs(want, s.images, s.out, pixels, lanes);
    for (double& y : want) y = std::max(y, kSlope * y);

    const Buffer px = to_panels(x, s.images, s.in, pixels, lanes);
    const Buffer pr = to_panels(r, s.images, s.out, pixels, lanes);
    const Buffer pb = to_panels(b, 1, s.out, 1, lanes);
    const Buffer u = weights(s, w, false);
    Buffer y(pr.size());
    std::vector<std::uint8_t> signs(pr.size() / 8);
    ConvJob job{.images = s.images,
                .height = s.height,
                .width = s.width,
                .in = wide(s.in),
                .out = wide(s.out),
                .x = px.data(),
                .u = u.data(),
                .y = y.data(),
                .epilogue = {.bias = pb.data(),
                             .residual = pr.data(),
                             .activate = true,
                             .signs_out = signs.data(),
                             .slope = kSlope},
                .schedule = {}};
    run(c, job, c.layer(wide(s.in), wide(s.out), false), k(), k().conv);
    EXPECT_LT(relative_error(to_planar(y, s.images, s.out, pixels, lanes), want), tolerance());
    if (coarse()) continue;
    // Weights made on the way: the same bits.
    const std::vector<float> before(y.data(), y.data() + y.size());
    const Buffer plain = taps(s, w);
    job.u = plain.data();
    job.taps = true;
    run(c, job, c.layer(wide(s.in), wide(s.out), false), k(), k().conv);
    EXPECT_EQ(std::vector<float>(y.data(), y.data() + y.size()), before);
    // A value within rounding of zero may take either sign; more than a few such bits would be an error.
    int different = 0;
    for (std::size_t i = 0; i < signs.size(); ++i)
      different += std::popcount<std::uint8_t>(signs[i] ^ want_signs[i]);
    EXPECT_LE(different, 2);
  }
}

TEST_P(KernelTest, ConvolutionDataGradient) {
  std::mt19937 rng(2);
  for (int trial = 0; trial < 40; ++trial) {
    const Case c = random_case(rng, 1);
    const Shape& s = c.shape;
    SCOPED_TRACE(c.text());
    const int pixels = s.height * s.width, lanes = k().lanes;
    const Doubles g = random_values(rng, std::size_t(s.images) * s.out * pixels);
    const Doubles w = random_values(rng, std::size_t(s.out) * s.in * 9);
    const Doubles gate = random_values(rng, std::size_t(s.images) * s.in * pixels);
    const Doubles r = random_values(rng, gate.size());
    Doubles want = reference::data_grad(s, g, w);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = (want[i] + r[i]) * (gate[i] > 0 ? 1 : kSlope);

    const Buffer pg = to_panels(g, s.images, s.out, pixels, lanes);
    const Buffer pr = to_panels(r, s.images, s.in, pixels, lanes);
    const std::vector<std::uint8_t> signs = to_signs(gate, s.images, s.in, pixels, lanes);
    const Buffer u = weights(s, w, true);
    Buffer dx(pr.size());
    ConvJob job{.images = s.images,
                .height = s.height,
                .width = s.width,
                .in = wide(s.out),
                .out = wide(s.in),
                .x = pg.data(),
                .u = u.data(),
                .y = dx.data(),
                .epilogue = {.residual = pr.data(), .signs_in = signs.data(), .slope = kSlope},
                .schedule = {}};
    run(c, job, c.layer(wide(s.out), wide(s.in), true), k(), k().conv_grad);
    EXPECT_LT(relative_error(to_planar(dx, s.images, s.in, pixels, lanes), want), tolerance());
  }
}

TEST_P(KernelTest, DownsamplingWithShortcut) {
  std::mt19937 rng(3);
  for (int trial = 0; trial < 40; ++trial) {
    const Case c = random_case(rng, 2);
    const Shape& s = c.shape;
    SCOPED_TRACE(c.text());
    Shape cut = s;
    cut.kernel = 1;
    const int pixels = s.height * s.width, outs = s.out_height() * s.out_width(), lanes = k().lanes;
    const Doubles x = random_values(rng, std::size_t(s.images) * s.in * pixels);
    const Doubles w = random_values(rng, std::size_t(s.out) * s.in * 9), b = random_values(rng, s.out);
    const Doubles ws = random_values(rng, std::size_t(s.out) * s.in), bs = random_values(rng, s.out);
    Doubles want = reference::forward(s, x, w, b);
    for (double& y : want) y = std::max(y, kSlope * y);

    const Buffer px = to_panels(x, s.images, s.in, pixels, lanes);
    const Buffer pb = to_panels(b, 1, s.out, 1, lanes), pbs = to_panels(bs, 1, s.out, 1, lanes);
    const Buffer u = weights(s, w, false);
    Buffer us(k().weight_floats(wide(s.in), wide(s.out), 1, false)),
        y(std::size_t(s.images) * wide(s.out) * outs), cut_y(y.size());
    k().pack(floats(ws).data(), s.out, s.in, wide(s.out), wide(s.in), false, nullptr, us.data());
    DownJob job{.images = s.images,
                .height = s.height,
                .width = s.width,
                .in = wide(s.in),
                .out = wide(s.out),
                .x = px.data(),
                .u = u.data(),
                .u_shortcut = us.data(),
                .y = y.data(),
                .shortcut = cut_y.data(),
                .epilogue = {.bias = pb.data(), .activate = true, .slope = kSlope},
                .shortcut_bias = pbs.data(),
                .schedule = {}};
    run(c, job, c.layer(wide(s.in), wide(s.out), false), k(), k().down);
    EXPECT_LT(relative_error(to_planar(y, s.images, s.out, outs, lanes), want), tolerance());
    EXPECT_LT(
        relative_error(to_planar(cut_y, s.images, s.out, outs, lanes), reference::forward(cut, x, ws, bs)),
        tolerance());
  }
}

TEST_P(KernelTest, DownsamplingDataGradient) {
  std::mt19937 rng(4);
  for (int trial = 0; trial < 40; ++trial) {
    const Case c = random_case(rng, 2);
    const Shape& s = c.shape;
    SCOPED_TRACE(c.text());
    Shape cut = s;
    cut.kernel = 1;
    const int pixels = s.height * s.width, outs = s.out_height() * s.out_width(), lanes = k().lanes;
    const Doubles g = random_values(rng, std::size_t(s.images) * s.out * outs);
    const Doubles gs = random_values(rng, g.size());
    const Doubles w = random_values(rng, std::size_t(s.out) * s.in * 9);
    const Doubles ws = random_values(rng, std::size_t(s.out) * s.in);
    const Doubles gate = random_values(rng, std::size_t(s.images) * s.in * pixels);
    Doubles want = reference::data_grad(s, g, w);
    const Doubles more = reference::data_grad(cut, gs, ws);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = (want[i] + more[i]) * (gate[i] > 0 ? 1 : kSlope);

    const Buffer pg = to_panels(g, s.images, s.out, outs, lanes),
                 pgs = to_panels(gs, s.images, s.out, outs, lanes);
    const std::vector<std::uint8_t> signs = to_signs(gate, s.images, s.in, pixels, lanes);
    const Buffer u = weights(s, w, true);
    Buffer us(k().weight_floats(wide(s.in), wide(s.out), 1, true)),
        dx(std::size_t(s.images) * wide(s.in) * pixels);
    k().pack(floats(ws).data(), s.out, s.in, wide(s.out), wide(s.in), true, nullptr, us.data());
    DownGradJob job{.images = s.images,
                    .height = s.height,
                    .width = s.width,
                    .in = wide(s.in),
                    .out = wide(s.out),
                    .g = pg.data(),
                    .g_shortcut = pgs.data(),
                    .u = u.data(),
                    .u_shortcut = us.data(),
                    .dx = dx.data(),
                    .epilogue = {.signs_in = signs.data(), .slope = kSlope},
                    .schedule = {}};
    run(c, job, c.layer(wide(s.out), wide(s.in), true), k(), k().down_grad);
    EXPECT_LT(relative_error(to_planar(dx, s.images, s.in, pixels, lanes), want), tolerance());
  }
}

TEST_P(KernelTest, WeightGradients) {
  if (coarse()) GTEST_SKIP();
  std::mt19937 rng(5);
  for (int trial = 0; trial < 60; ++trial) {
    const Case c = random_case(rng, 1 + trial % 2);
    const Shape& s = c.shape;
    SCOPED_TRACE(c.text());
    Shape cut = s;
    cut.kernel = 1;
    const int pixels = s.height * s.width, outs = s.out_height() * s.out_width(), lanes = k().lanes;
    const Doubles x = random_values(rng, std::size_t(s.images) * s.in * pixels);
    const Doubles g = random_values(rng, std::size_t(s.images) * s.out * outs),
                  gs = random_values(rng, g.size());
    Doubles want_bias(s.out), want_bias_cut(s.out);
    for (std::size_t i = 0; i < g.size(); ++i) {
      want_bias[i / outs % s.out] += g[i];
      want_bias_cut[i / outs % s.out] += gs[i];
    }
    const Buffer px = to_panels(x, s.images, s.in, pixels, lanes);
    const Buffer pg = to_panels(g, s.images, s.out, outs, lanes),
                 pgs = to_panels(gs, s.images, s.out, outs, lanes);
    const GradSpace space = k().grad_space(c.layer(wide(s.in), wide(s.out), false), {c.shared, c.block});
    Buffer v(c.threads * space.v), d(c.threads * space.d), du(grad_parts(c.threads) * space.du);
    std::vector<float> dw(std::size_t(s.out) * s.in * 9), db(s.out), dws(std::size_t(s.out) * s.in),
        dbs(s.out);
    for (const bool shared : {true, false}) {
      SCOPED_TRACE(shared ? "one sum for the team" : "a sum per part");
      for (Buffer* left : {&v, &d, &du}) {  // what the last user left
        std::fill_n(left->data(), left->size(), std::numeric_limits<float>::quiet_NaN());
      }
      run_team(c.threads, [&](const Team& team) {
        k().weight_grad({.images = s.images,
                         .height = s.height,
                         .width = s.width,
                         .in = wide(s.in),
                         .out = wide(s.out),
                         .in_real = s.in,
                         .out_real = s.out,
                         .stride = s.stride,
                         .x = px.data(),
                         .g = pg.data(),
                         .g_shortcut = pgs.data(),
                         .shared = shared,
                         .block = c.block,
                         .v = v.data() + (shared ? 0 : team.id * space.v),
                         .d = d.data() + (shared ? 0 : team.id * space.d),
                         .du = du.data(),
                         .dw = dw.data(),
                         .db = db.data(),
                         .dw_shortcut = dws.data(),
                         .db_shortcut = dbs.data()},
                        team);
      });
      EXPECT_LT(relative_error(dw, reference::weight_grad(s, x, g)), kTolerance);
      EXPECT_LT(relative_error(db, want_bias), kTolerance);
      if (s.stride == 2) {
        EXPECT_LT(relative_error(dws, reference::weight_grad(cut, x, gs)), kTolerance);
        EXPECT_LT(relative_error(dbs, want_bias_cut), kTolerance);
      }
    }
  }
}

TEST_P(KernelTest, StemAndItsGradients) {
  std::mt19937 rng(6);
  const StemShape windows[] = {{3, 1, 1}, {7, 2, 3}, {4, 4, 0}};
  for (int trial = 0; trial < 45; ++trial) {
    Case c = random_case(rng, 1);
    const StemShape window = windows[trial % 3];
    Shape& s = c.shape;
    s.in = 1 + trial / 3 % 3;
    s.height += 4;
    s.width += 4;
    s.kernel = window.kernel;
    s.stride = window.stride;
    s.padding = window.pad;
    SCOPED_TRACE(c.text() + ", window " + std::to_string(window.kernel));
    ASSERT_EQ(window.out(s.height), s.out_height());
    const int pixels = s.height * s.width, outs = s.out_height() * s.out_width(), lanes = k().lanes;
    const Doubles x = random_values(rng, std::size_t(s.images) * s.in * pixels);
    const Doubles w = random_values(rng, std::size_t(s.out) * s.in * s.kernel * s.kernel),
                  b = random_values(rng, s.out);
    const Doubles g = random_values(rng, std::size_t(s.images) * s.out * outs);
    const std::vector<float> fx = floats(x);
    const Buffer pb = to_panels(b, 1, s.out, 1, lanes), pg = to_panels(g, s.images, s.out, outs, lanes);
    Buffer packed(stem_weight_floats(window, s.in, wide(s.out))), y(pg.size());
    Buffer partial(stem_partial_floats(window, s.in, wide(s.out)) * grad_parts(c.threads));
    k().stem_weights(window, floats(w).data(), s.out, s.in, wide(s.out), nullptr, packed.data());
    std::vector<float> dx(x.size()), dw(w.size()), db(s.out);
    run_team(c.threads, [&](const Team& team) {
      Buffer scratch(stem_floats(window, s.in, s.height, s.width, lanes));
      k().stem({.shape = window,
                .images = s.images,
                .height = s.height,
                .width = s.width,
                .in = s.in,
                .out = wide(s.out),
                .out_real = s.out,
                .x = fx.data(),
                .w = packed.data(),
                .y = y.data(),
                .epilogue = {.bias = pb.data()},
                .scratch = scratch.data()},
               team);
      const StemGradJob job{.shape = window,
                            .images = s.images,
                            .height = s.height,
                            .width = s.width,
                            .in = s.in,
                            .out = wide(s.out),
                            .out_real = s.out,
                            .g = pg.data(),
                            .w = packed.data(),
                            .dx = dx.data(),
                            .x = fx.data(),
                            .partial = partial.data(),
                            .dw = dw.data(),
                            .db = db.data(),
                            .scratch = scratch.data()};
      k().stem_data_grad(job, team);
      k().stem_weight_grad(job, team);
    });
    EXPECT_LT(relative_error(to_planar(y, s.images, s.out, outs, lanes), reference::forward(s, x, w, b)),
              kTolerance);
    EXPECT_LT(relative_error(dx, reference::data_grad(s, g, w)), kTolerance);
    EXPECT_LT(relative_error(dw, reference::weight_grad(s, x, g)), kTolerance);
    Doubles want(s.out);
    for (std::size_t i = 0; i < g.size(); ++i) want[i / outs % s.out] += g[i];
    EXPECT_LT(relative_error(db, want), kTolerance);
  }
}

TEST_P(KernelTest, MaxPoolingAndItsGradient) {
  std::mt19937 rng(16);
  const int lanes = k().lanes, channels = lanes + 3;
  for (const auto& [height, width] : {std::pair{1, 1}, {2, 3}, {5, 4}, {8, 9}}) {
    const int images = 2, pixels = height * width, high = (height + 1) / 2, wider = (width + 1) / 2;
    Doubles x = random_values(rng, std::size_t(images) * channels * pixels);
    x[0] = x[pixels - 1];  // of equal ones the first
    const Doubles g = random_values(rng, std::size_t(images) * channels * high * wider);
    Doubles want(g.size()), want_dx(x.size());
    for (std::size_t plane = 0; plane < std::size_t(images) * channels; ++plane) {
      for (int y = 0; y < high; ++y) {
        for (int c = 0; c < wider; ++c) {
          std::size_t best = x.size();
          for (int r = std::max(0, 2 * y - 1); r < std::min(height, 2 * y + 2); ++r) {
            for (int q = std::max(0, 2 * c - 1); q < std::min(width, 2 * c + 2); ++q) {
              const std::size_t at = plane * pixels + std::size_t(r) * width + q;
              if (best == x.size() || x[at] > x[best]) best = at;
            }
          }
          const std::size_t to = (plane * high + y) * wider + c;
          want[to] = x[best];
          want_dx[best] += g[to];
        }
      }
    }
    const Buffer px = to_panels(x, images, channels, pixels, lanes),
                 pg = to_panels(g, images, channels, high * wider, lanes);
    Buffer y(pg.size()), origin(pg.size()), dx(px.size());
    std::fill_n(dx.data(), dx.size(), 7.f);
    run_team(2, [&](const Team& team) {
      const MaxPoolJob job{.images = images,
                           .height = height,
                           .width = width,
                           .channels = wide(channels),
                           .x = px.data(),
                           .y = y.data(),
                           .g = pg.data(),
                           .dx = dx.data(),
                           .origin = origin.data(),
                           .epilogue = {}};
      k().max_pool(job, team);
      team.sync();
      k().max_pool_grad(job, team);
    });
    EXPECT_EQ(to_planar(y, images, channels, high * wider, lanes), want);
    EXPECT_LT(relative_error(to_planar(dx, images, channels, pixels, lanes), want_dx), 1e-6);
  }
}

TEST_P(KernelTest, FoldedScaleMultipliesOutputChannels) {
  std::mt19937 rng(7);
  const Shape s{.images = 1, .in = 8, .out = 16, .height = 5, .width = 5};
  const Doubles x = random_values(rng, s.in * 25), w = random_values(rng, std::size_t(s.out) * s.in * 9);
  const Doubles g = random_values(rng, s.out * 25), scale = random_values(rng, s.out);
  Doubles scaled = w;
  for (std::size_t i = 0; i < w.size(); ++i) scaled[i] *= scale[i / (s.in * 9)];
  for (const bool gradient : {false, true}) {
    SCOPED_TRACE(gradient ? "data gradient" : "forward");
    const int in = gradient ? s.out : s.in, out = gradient ? s.in : s.out;
    const Buffer px = to_panels(gradient ? g : x, 1, in, 25, k().lanes),
                 u = weights(s, w, gradient, floats(scale).data());
    Buffer y(std::size_t(wide(out)) * 25);
    const Case c{s, 1, 4, false};
    run(c, plain_job(s, wide(in), wide(out), px, u, y), c.layer(wide(in), wide(out), gradient), k(),
        gradient ? k().conv_grad : k().conv);
    EXPECT_LT(
        relative_error(to_planar(y, 1, out, 25, k().lanes),
                       gradient ? reference::data_grad(s, g, scaled) : reference::forward(s, x, scaled, {})),
        tolerance());
  }
}

TEST_P(KernelTest, ResultsDoNotDependOnThreadsOrBlocks) {
  std::mt19937 rng(8);
  const Shape s{.images = 3, .in = 16, .out = 24, .height = 11, .width = 9};
  const int pixels = 99, lanes = k().lanes;
  const Doubles w = random_values(rng, std::size_t(s.out) * s.in * 9);
  for (const bool gradient : {false, true}) {
    const int in = gradient ? s.out : s.in, out = gradient ? s.in : s.out;
    const Buffer px =
        to_panels(random_values(rng, std::size_t(s.images) * in * pixels), s.images, in, pixels, lanes);
    const Buffer u = weights(s, w, gradient);
    std::vector<float> first;
    for (const Case& c : {Case{s, 1, 64, false}, Case{s, 2, 5, false, 1}, Case{s, 3, 7, true}}) {
      Buffer y(std::size_t(s.images) * wide(out) * pixels);
      run(c, plain_job(s, wide(in), wide(out), px, u, y), c.layer(wide(in), wide(out), gradient), k(),
          gradient ? k().conv_grad : k().conv);
      if (first.empty()) first.assign(y.data(), y.data() + y.size());
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << c.text();
    }
  }
}

TEST_P(KernelTest, PoolingAndItsGradient) {
  std::mt19937 rng(9);
  const int images = 3, channels = 24, pixels = 6, lanes = k().lanes;
  const Doubles x = random_values(rng, std::size_t(images) * channels * pixels);
  const Doubles df = random_values(rng, std::size_t(images) * channels), gate = random_values(rng, x.size());
  Doubles want(df.size()), want_grad(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    want[i / pixels] += x[i] / pixels;
    want_grad[i] = df[i / pixels] / pixels * (gate[i] > 0 ? 1 : kSlope);
  }
  const Buffer px = to_panels(x, images, channels, pixels, lanes);
  const std::vector<std::uint8_t> signs = to_signs(gate, images, channels, pixels, lanes);
  std::vector<float> features(df.size());
  Buffer dx(px.size());
  run_team(2, [&](const Team& team) {
    k().pool(px.data(), images, wide(channels), channels, pixels, features.data(), team);
    k().pool_grad(floats(df).data(), images, wide(channels), channels, pixels, signs.data(), kSlope,
                  dx.data(), team);
  });
  EXPECT_LT(relative_error(features, want), 1e-6);
  EXPECT_LT(relative_error(to_planar(dx, images, channels, pixels, lanes), want_grad), 1e-6);
}

/// Every table, that for chains in bfloat16 too.
std::vector<const Kernels*> all_kernels() {
  auto list = available_kernels();
  if (const Kernels* coarse = bf16_kernels()) list.push_back(coarse);
  return list;
}

// The products of bfloat16 against the same sums of rounded numbers: where rounding has nothing to lose,
// nothing is lost, so that whatever error there is elsewhere is that of rounding.
TEST(Bf16Kernels, AreExactWhereRoundingIs) {
  const Kernels* k = bf16_kernels();
  if (k == nullptr) GTEST_SKIP() << "no avx512_bf16";
  std::mt19937 rng(21);
  // The shortcut of stride 2 multiplies pixels and weights as they are: small whole numbers have no error.
  const Shape s{.images = 2, .in = 40, .out = 24, .height = 9, .width = 7, .kernel = 1, .stride = 2};
  const auto whole = [&](std::size_t count) {
    Doubles d(count);
    for (double& v : d) v = std::uniform_int_distribution<int>(-9, 9)(rng);
    return d;
  };
  const int in = padded(s.in, k->lanes), out = padded(s.out, k->lanes), outs = s.out_height() * s.out_width();
  const Doubles x = whole(std::size_t(s.images) * s.in * s.height * s.width),
                ws = whole(std::size_t(s.out) * s.in);
  const Buffer px = to_panels(x, s.images, s.in, s.height * s.width, k->lanes);
  Buffer u(k->weight_floats(in, out, 3, false)), us(k->weight_floats(in, out, 1, false)),
      y(std::size_t(s.images) * out * outs), cut(y.size());
  k->pack(floats(ws).data(), s.out, s.in, out, in, false, nullptr, us.data());
  Case c{.shape = s, .threads = 2, .block = 3, .shared = false};
  run(c,
      DownJob{.images = s.images,
              .height = s.height,
              .width = s.width,
              .in = in,
              .out = out,
              .x = px.data(),
              .u = u.data(),
              .u_shortcut = us.data(),
              .y = y.data(),
              .shortcut = cut.data(),
              .epilogue = {},
              .schedule = {}},
      {in, out, 2, s.height, s.width, false}, *k, k->down);
  EXPECT_EQ(to_planar(cut, s.images, s.out, outs, k->lanes), reference::forward(s, x, ws, {}));
}

INSTANTIATE_TEST_SUITE_P(Sets, KernelTest, ::testing::ValuesIn(all_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KernelTest);

}  // namespace
}  // namespace ebclr::cpu
