// The whole network against a plain one in double precision: features, and gradients along random directions.

#include "cpu/network.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cpu/kernel_fixture.h"
#include "cpu/reference.h"

namespace ebclr::cpu {
namespace {

using namespace testing;
using reference::Shape;

/// A network's parameters in double, and as the kernels read them.
struct Parameters {
  Parameters(const Network& network, std::mt19937& rng) {
    for (const ConvLayer& c : network.convs()) {
      const int fan_in = c.in_real * c.kernel * c.kernel;
      weight.push_back(random_values(rng, std::size_t(c.out_real) * fan_in, 1 / std::sqrt(fan_in)));
      shift.push_back(random_values(rng, c.out_real, 0.1));
      scale.push_back(random_values(rng, c.out_real, 0.2));
      mean.push_back(random_values(rng, c.out_real, 0.1));
      var.push_back(random_values(rng, c.out_real, 0.2));
      for (double& s : scale.back()) s = static_cast<float>(1 + s);
      for (double& v : var.back()) v = static_cast<float>(1 + v * v);
    }
  }
  std::vector<Doubles> weight, shift, scale, mean, var;
  std::vector<std::vector<float>> keep;

  std::vector<ConvParameters> pointers(bool norm) {
    keep.clear();
    keep.reserve(weight.size() * 5);
    std::vector<ConvParameters> list;
    const auto hold = [&](const Doubles& d) { return keep.emplace_back(floats(d)).data(); };
    for (std::size_t i = 0; i < weight.size(); ++i) {
      ConvParameters p{.weight = hold(weight[i])};
      if (norm) {
        p.gamma = hold(scale[i]);
        p.beta = hold(shift[i]);
        p.running_mean = hold(mean[i]);
        p.running_var = hold(var[i]);
      } else {
        p.bias = hold(shift[i]);
      }
      list.push_back(p);
    }
    return list;
  }
};

/// The same network without any trick. `batch`: BatchNorm with the batch's statistics.
Doubles plain_features(const Network& network, const Parameters& p, const Doubles& images, int n, int height,
                       int width, bool batch) {
  const NetworkShape& shape = network.shape();
  const auto convolve = [&](int i, const Doubles& x, int h, int w) {
    const ConvLayer& c = network.convs()[i];
    const Shape s{.images = n,
                  .in = c.in_real,
                  .out = c.out_real,
                  .height = h,
                  .width = w,
                  .kernel = c.kernel,
                  .stride = c.stride};
    if (!shape.batch_norm) return reference::forward(s, x, p.weight[i], p.shift[i]);
    Doubles y = reference::forward(s, x, p.weight[i], {});
    const int pixels = s.out_height() * s.out_width();
    for (int ch = 0; ch < c.out_real; ++ch) {
      double mean = p.mean[i][ch], var = p.var[i][ch];
      const auto each = [&](const auto& body) {
        for (int k = 0; k < n * pixels; ++k) body(y[(k / pixels * c.out_real + ch) * pixels + k % pixels]);
      };
      if (batch) {
        mean = var = 0;
        each([&](double v) { mean += v / (n * pixels); });
        each([&](double v) { var += (v - mean) * (v - mean) / (n * pixels); });
      }
      const double factor = p.scale[i][ch] / std::sqrt(var + shape.epsilon);
      each([&](double& v) { v = (v - mean) * factor + p.shift[i][ch]; });
    }
    return y;
  };
  const auto activate = [&](Doubles& x) {
    for (double& v : x) v = v > 0 ? v : v * shape.slope;
  };
  Doubles x = convolve(0, images, height, width);
  activate(x);
  int i = 1;
  for (int stage = 0; stage < 4; ++stage) {
    for (int b = 0; b < shape.blocks[stage]; ++b) {
      const bool down = stage > 0 && b == 0;
      Doubles mid = convolve(i, x, height, width);
      activate(mid);
      const Doubles shortcut = down ? convolve(i + 2, x, height, width) : x;
      if (down) {
        height = (height + 1) / 2;
        width = (width + 1) / 2;
      }
      x = convolve(i + 1, mid, height, width);
      for (std::size_t k = 0; k < x.size(); ++k) x[k] += shortcut[k];
      activate(x);
      i += down ? 3 : 2;
    }
  }
  Doubles features(std::size_t(n) * network.features());
  const int pixels = height * width;
  for (std::size_t k = 0; k < x.size(); ++k) features[k / pixels] += x[k] / pixels;
  return features;
}

struct Case {
  NetworkShape shape;
  int images, height, width, threads;
  std::size_t l2 = 0;  // a tiny one makes the team share every stage
};

class NetworkTest : public ::testing::TestWithParam<const Kernels*> {};

std::vector<Case> cases() {
  return {{{.channels = 3, .width = 8}, 3, 9, 12, 2},
          {{.channels = 1, .width = 8, .blocks = {1, 2, 1, 1}, .slope = 0}, 2, 16, 11, 3},
          {{.channels = 3, .width = 8, .blocks = {1, 1, 1, 2}}, 5, 10, 13, 2, 4096},
          {{.channels = 3, .width = 24, .blocks = {1, 1, 1, 1}, .batch_norm = true}, 3, 10, 8, 2}};
}

double dot(const std::vector<float>& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST_P(NetworkTest, FeaturesAndGradients) {
  std::mt19937 rng(11);
  for (const Case& c : cases()) {
    Network network(c.shape, *GetParam(), c.threads, c.l2);
    Parameters parameters(network, rng);
    const std::size_t pixels = std::size_t(c.images) * c.shape.channels * c.height * c.width;
    const Doubles x = random_values(rng, pixels);
    const std::vector<float> fx = floats(x);
    const std::size_t count = std::size_t(c.images) * network.features();
    const Doubles weigh = random_values(rng, count);
    const std::vector<float> fweigh = floats(weigh);
    const auto plain = [&](const Parameters& p, const Doubles& images, bool batch) {
      return plain_features(network, p, images, c.images, c.height, c.width, batch);
    };
    const auto slope = [&](const auto& features_at) {
      const double step = 1e-6;
      const Doubles up = features_at(step), low = features_at(-step);
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i) sum += weigh[i] * (up[i] - low[i]) / (2 * step);
      return sum;
    };
    const auto moved = [](Doubles values, const Doubles& along, double by) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += by * along[i];
      return values;
    };
    const Doubles along = random_values(rng, pixels);

    // Inference and sampling.
    const std::vector<ConvParameters> pointers = parameters.pointers(c.shape.batch_norm);
    WeightSet weights;
    network.load(weights, pointers, c.shape.batch_norm, true);
    std::vector<float> features(count), again(count), dx(pixels);
    network.infer(weights, fx.data(), c.images, c.height, c.width, features.data());
    EXPECT_LT(relative_error(features, plain(parameters, x, false)), 1e-4);
    const auto tape = network.sample(weights, fx.data(), c.images, c.height, c.width, again.data());
    EXPECT_EQ(features, again);
    network.input_gradient(weights, *tape, fweigh.data(), dx.data());
    const double want_dx = slope([&](double by) { return plain(parameters, moved(x, along, by), false); });
    EXPECT_NEAR(dot(dx, along), want_dx, 1e-3 * std::abs(want_dx) + 1e-4);

    // Training.
    network.load(weights, pointers, false, true);
    const auto full =
        network.train(weights, pointers, fx.data(), c.images, c.height, c.width, features.data());
    EXPECT_LT(relative_error(features, plain(parameters, x, true)), 1e-4);
    std::vector<std::vector<float>> dw, db, dgamma;
    std::vector<ConvGradients> into;
    for (const ConvLayer& conv : network.convs()) {
      dw.emplace_back(std::size_t(conv.out_real) * conv.in_real * conv.kernel * conv.kernel);
      db.emplace_back(conv.out_real);
      dgamma.emplace_back(conv.out_real);
      into.push_back({.weight = dw.back().data()});
      if (c.shape.batch_norm) {
        into.back().gamma = dgamma.back().data();
        into.back().beta = db.back().data();
      } else {
        into.back().bias = db.back().data();
      }
    }
    network.backward(weights, pointers, *full, fx.data(), fweigh.data(), into, dx.data());
    const double want_full = slope([&](double by) { return plain(parameters, moved(x, along, by), true); });
    EXPECT_NEAR(dot(dx, along), want_full, 1e-3 * std::abs(want_full) + 1e-4);
    for (std::size_t i = 0; i < dw.size(); ++i) {
      const Doubles d = random_values(rng, dw[i].size(), 0.1), e = random_values(rng, db[i].size());
      const Doubles f = random_values(rng, db[i].size());
      const double want = slope([&](double by) {
        Parameters p = parameters;
        p.weight[i] = moved(p.weight[i], d, by);
        p.shift[i] = moved(p.shift[i], e, by);
        if (c.shape.batch_norm) p.scale[i] = moved(p.scale[i], f, by);
        return plain(p, x, true);
      });
      const double got = dot(dw[i], d) + dot(db[i], e) + (c.shape.batch_norm ? dot(dgamma[i], f) : 0);
      EXPECT_NEAR(got, want, 2e-3 * std::abs(want) + 1e-3) << "convolution " << i;
    }
  }
}

TEST_P(NetworkTest, ThreadsDoNotChangeWhatSamplingSees) {
  std::mt19937 rng(12);
  const NetworkShape shape{.channels = 3, .width = 8};
  std::vector<float> first;
  const std::vector<float> x = floats(random_values(rng, 5 * 3 * 16 * 16));
  for (const auto& [threads, l2] : {std::pair{1, 0}, {2, 0}, {3, 0}, {2, 4096}}) {
    Network network(shape, *GetParam(), threads, l2);
    std::mt19937 same(13);
    Parameters parameters(network, same);
    WeightSet weights;
    network.load(weights, parameters.pointers(false), false, true);
    std::vector<float> features(5 * 64), dx(x.size());
    const auto tape = network.sample(weights, x.data(), 5, 16, 16, features.data());
    network.input_gradient(weights, *tape, features.data(), dx.data());
    if (first.empty()) first = dx;
    EXPECT_EQ(first, dx) << threads << " threads, L2 " << l2;
  }
}

TEST_P(NetworkTest, TapesReturnTheirMemory) {
  std::mt19937 rng(14);
  Network network({.channels = 1, .width = 8}, *GetParam(), 1);
  Parameters parameters(network, rng);
  const auto pointers = parameters.pointers(false);
  WeightSet weights;
  network.load(weights, pointers, false, true);
  const std::vector<float> x = floats(random_values(rng, 2 * 16 * 16));
  std::vector<float> features(2 * 64);
  std::size_t peak = 0;
  for (int i = 0; i < 4; ++i) {
    const auto tape = network.train(weights, pointers, x.data(), 2, 16, 16, features.data());
    if (i == 0) peak = network.peak_bytes();
    EXPECT_EQ(network.peak_bytes(), peak);
  }
}

TEST(Unsupported, NamesWhatIsWrong) {
  EXPECT_EQ(unsupported({.channels = 3, .width = 64}, 32, 32), "");
  EXPECT_NE(unsupported({.channels = 3, .width = 12}, 32, 32).find("12"), std::string::npos);
  EXPECT_NE(unsupported({.channels = 7, .width = 16}, 32, 32).find("7"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Sets, NetworkTest, ::testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkTest);

}  // namespace
}  // namespace ebclr::cpu
