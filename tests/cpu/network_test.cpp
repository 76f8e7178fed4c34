// The whole network against a plain one in double precision: features, and gradients along random directions.

#include "cpu/network.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <set>
#include <thread>

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
                  .stride = c.stride,
                  .padding = i == 0 ? shape.stem.pad : -1};
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
  height = shape.stem.out(height);
  width = shape.stem.out(width);
  if (shape.stem.pool) {
    const int high = (height + 1) / 2, wide = (width + 1) / 2;
    Doubles pooled(x.size() / (height * width) * high * wide, -1e30);
    for (std::size_t k = 0; k < pooled.size(); ++k) {
      const int r = k / wide % high, q = k % wide;
      for (int dr = -1; dr < 2; ++dr) {
        for (int dq = -1; dq < 2; ++dq) {
          const int row = 2 * r + dr, col = 2 * q + dq;
          if (row < 0 || col < 0 || row >= height || col >= width) continue;
          pooled[k] = std::max(pooled[k], x[(k / (high * wide) * height + row) * width + col]);
        }
      }
    }
    x = pooled;
    height = high;
    width = wide;
  }
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
          {{.channels = 3, .width = 24, .blocks = {1, 1, 1, 1}, .batch_norm = true}, 3, 10, 8, 2},
          {{.channels = 3, .stem = {7, 2, 3, true}, .width = 8, .blocks = {1, 1, 1, 1}}, 3, 22, 17, 2},
          {{.channels = 1, .stem = {7, 2, 3, true}, .width = 8, .blocks = {1, 1, 1, 1}}, 1, 16, 16, 3, 4096},
          {{.channels = 3, .stem = {7, 2, 3, true}, .width = 8, .blocks = {1, 1, 1, 1}, .batch_norm = true},
           4,
           34,
           36,
           2},
          {{.channels = 3, .stem = {4, 4, 0}, .width = 16, .blocks = {1, 1, 1, 1}}, 2, 24, 28, 2}};
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
    network.load(weights, pointers, {.fold = c.shape.batch_norm, .backward = true});
    std::vector<float> features(count), again(count), dx(pixels);
    network.infer(weights, fx.data(), c.images, c.height, c.width, features.data());
    EXPECT_LT(relative_error(features, plain(parameters, x, false)), 1e-4);
    const auto tape = network.sample(weights, fx.data(), c.images, c.height, c.width, again.data());
    EXPECT_EQ(features, again);
    network.input_gradient(weights, *tape, fweigh.data(), dx.data());
    const double want_dx = slope([&](double by) { return plain(parameters, moved(x, along, by), false); });
    EXPECT_NEAR(dot(dx, along), want_dx, 1e-3 * std::abs(want_dx) + 1e-4);

    // Training.
    network.load(weights, pointers, {.backward = true});
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

/// Gradients to the images, whose bits must not depend on threads and cache, and the features.
std::pair<std::vector<float>, std::vector<float>> gradient_for_any_threads(const Kernels& kernels) {
  std::mt19937 rng(12);
  const NetworkShape shape{.channels = 3, .width = 8};
  std::vector<float> first, features(5 * 64);
  const std::vector<float> x = floats(random_values(rng, 5 * 3 * 16 * 16));
  for (const auto& [threads, l2] : {std::pair{1, 0}, {2, 0}, {3, 0}, {2, 4096}}) {
    Network network(shape, kernels, threads, l2);
    std::mt19937 same(13);
    Parameters parameters(network, same);
    WeightSet weights;
    network.load(weights, parameters.pointers(false), {.backward = true});
    std::vector<float> dx(x.size());
    const auto tape = network.sample(weights, x.data(), 5, 16, 16, features.data());
    network.input_gradient(weights, *tape, features.data(), dx.data());
    if (first.empty()) first = dx;
    EXPECT_EQ(first, dx) << threads << " threads, L2 " << l2;
  }
  return {first, features};
}

TEST_P(NetworkTest, ThreadsDoNotChangeWhatSamplingSees) {
  gradient_for_any_threads(*GetParam());
}

// Features are off by some hundredths; gradients by more, because activations near zero land on the other
// side of it, but they point the same way.
TEST(Bf16Network, GradientsPointTheSameWay) {
  if (bf16_kernels() == nullptr) GTEST_SKIP() << "no avx512_bf16";
  const auto [coarse, coarse_features] = gradient_for_any_threads(*bf16_kernels());
  const auto [exact, features] = gradient_for_any_threads(*find_kernels("avx512"));
  EXPECT_LT(relative_error(coarse_features, Doubles(features.begin(), features.end())), 5e-2);
  const Doubles want(exact.begin(), exact.end());
  const double along = dot(coarse, want), length = dot(exact, want),
               coarse_length = dot(coarse, Doubles(coarse.begin(), coarse.end()));
  EXPECT_GT(along / std::sqrt(length * coarse_length), 0.9);
  EXPECT_NEAR(coarse_length / length, 1, 0.2);
}

/// A head and references in double, as its energy is defined.
struct PlainHead {
  std::vector<Doubles> weight = {}, bias = {};  // [out][in]
  std::vector<int> widths;                      // features, hidden, out
  Doubles references = {};
  double tau, slope;

  double energy(const double* features) const {
    Doubles f(features, features + widths[0]);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      Doubles y(widths[i + 1]);
      for (int o = 0; o < widths[i + 1]; ++o) {
        y[o] = bias[i][o];
        for (int k = 0; k < widths[i]; ++k) y[o] += weight[i][o * widths[i] + k] * f[k];
        if (i + 1 < weight.size() && y[o] < 0) y[o] *= slope;
      }
      f = y;
    }
    const auto unit = [](Doubles v) {
      double norm = 0;
      for (const double x : v) norm += x * x;
      for (double& x : v) x /= std::sqrt(norm);
      return v;
    };
    const Doubles z = unit(f);
    double sum = 0;
    for (std::size_t m = 0; m < references.size() / z.size(); ++m) {
      const Doubles r = unit({references.begin() + m * z.size(), references.begin() + (m + 1) * z.size()});
      double square = 0;
      for (std::size_t d = 0; d < z.size(); ++d) square += (z[d] - r[d]) * (z[d] - r[d]);
      sum += std::exp(-square / tau);
    }
    return -std::log(sum);
  }
};

TEST_P(NetworkTest, ChainsFollowTheEnergyOfTheHead) {
  std::mt19937 rng(15);
  constexpr int kImages = 3, kSize = 16, kSteps = 3, kReferences = 5;
  constexpr long kValues = 3 * kSize * kSize, kTotal = kImages * kValues;
  const std::vector<float> start = floats(random_values(rng, kTotal, 0.5)),
                           noise = floats(random_values(rng, kSteps * kTotal));
  const std::vector<float> sigma{0.05f, 0, 0.01f};
  std::vector<float> first;
  // Whoever shares what, and whichever form the weights have, the bits are the same.
  for (const auto& [threads, l2] : {std::pair{1, 0}, {2, 0}, {3, 0}, {2, 4096}, {1, 4096}, {3, 65536}}) {
    Network network({.channels = 3, .width = 8}, *GetParam(), threads, l2);
    std::mt19937 same(16);
    Parameters parameters(network, same);
    PlainHead plain{.widths = {network.features(), 24, 10}, .tau = 0.1, .slope = 0.2};
    std::vector<std::vector<float>> keep;
    EnergyHead head{.count = kReferences, .tau = plain.tau};
    for (int i = 0; i < 2; ++i) {
      plain.weight.push_back(random_values(same, plain.widths[i] * plain.widths[i + 1], 0.2));
      plain.bias.push_back(random_values(same, plain.widths[i + 1], 0.1));
      keep.push_back(floats(plain.weight.back()));
      keep.push_back(floats(plain.bias.back()));
    }
    plain.references = random_values(same, kReferences * plain.widths[2]);
    keep.push_back(floats(plain.references));
    for (int i = 0; i < 2; ++i) {
      head.layers.push_back({.in = plain.widths[i],
                             .out = plain.widths[i + 1],
                             .weight = keep[2 * i].data(),
                             .bias = keep[2 * i + 1].data()});
    }
    head.references = keep.back().data();
    WeightSet weights;
    network.load(weights, parameters.pointers(false),
                 {.backward = true, .taps = network.wants_taps(kImages, kSize, kSize)});
    const auto run = [&](int steps, float clamp, float step_size) {
      std::vector<float> v = start, energies(steps * kImages);
      network.chains(
          weights, head,
          {.steps = steps,
           .step_size = step_size,
           .clamp = clamp,
           .sigma = sigma.data(),
           .noise = [&](long at, float* out, long count) { std::copy_n(noise.begin() + at, count, out); }},
          v.data(), kImages, kSize, kSize, energies.data());
      return std::pair{v, energies};
    };
    const auto [v, energies] = run(kSteps, 0.02f, 0.5f);
    if (!first.empty()) {
      EXPECT_EQ(first, v) << threads << " threads, L2 " << l2;
      continue;
    }
    first = v;
    // Energies as defined, and one step without clamp or noise against a difference quotient of them.
    const Doubles x(start.begin(), start.end());
    const auto energy_of = [&](const Doubles& at, int image) {
      const Doubles f = plain_features(network, parameters, at, kImages, kSize, kSize, false);
      return plain.energy(f.data() + image * network.features());
    };
    for (int n = 0; n < kImages; ++n) EXPECT_NEAR(energies[n], energy_of(x, n), 1e-4 * std::abs(energies[n]));
    const auto [stepped, unused] = run(1, 0, 1);
    const Doubles along = random_values(rng, kTotal);
    for (int n = 0; n < kImages; ++n) {
      double got = 0;
      for (long i = n * kValues; i < (n + 1) * kValues; ++i) {
        got += (x[i] + double(sigma[n]) * noise[i] - stepped[i]) * along[i];
      }
      Doubles up = x, low = x;
      for (long i = n * kValues; i < (n + 1) * kValues; ++i) {
        up[i] += 1e-6 * along[i];
        low[i] -= 1e-6 * along[i];
      }
      const double want = (energy_of(up, n) - energy_of(low, n)) / 2e-6;
      EXPECT_NEAR(got, want, 2e-3 * std::abs(want) + 1e-3);
    }
    // The clamp holds: no pixel moves by more than its bound.
    const auto [clamped, unused_too] = run(1, 1e-4f, 1);
    for (long i = 0; i < kTotal; ++i) {
      EXPECT_LE(std::abs(clamped[i] - (x[i] + double(sigma[i / kValues]) * noise[i])), 1.1e-4);
    }
  }
}

/// Of all convolutions, one after the other, then of the images.
std::vector<float> gradients_of_a_batch(const Kernels& kernels, int threads) {
  std::mt19937 rng(17);
  const std::vector<float> x = floats(random_values(rng, 5 * 3 * 16 * 16));
  Network network({.channels = 3, .width = 8}, kernels, threads);
  std::mt19937 same(13);
  Parameters parameters(network, same);
  const auto pointers = parameters.pointers(false);
  WeightSet weights;
  network.load(weights, pointers, {.backward = true});
  std::vector<float> features(5 * 64), dx(x.size()), all;
  std::vector<ConvGradients> into;
  std::vector<std::vector<float>> keep;
  for (const ConvLayer& c : network.convs()) {
    keep.emplace_back(std::size_t(c.out_real) * c.in_real * c.kernel * c.kernel);
    keep.emplace_back(c.out_real);
  }
  for (std::size_t i = 0; i < keep.size(); i += 2) {
    into.push_back({.weight = keep[i].data(), .bias = keep[i + 1].data()});
  }
  const auto tape = network.train(weights, pointers, x.data(), 5, 16, 16, features.data());
  network.backward(weights, pointers, *tape, x.data(), features.data(), into, dx.data());
  for (const auto& values : keep) all.insert(all.end(), values.begin(), values.end());
  all.insert(all.end(), dx.begin(), dx.end());
  return all;
}

TEST_P(NetworkTest, ThreadsDoNotChangeWeightGradients) {
  const auto one = gradients_of_a_batch(*GetParam(), 1);
  for (const int threads : {2, 3}) {
    const auto several = gradients_of_a_batch(*GetParam(), threads);
    EXPECT_EQ(several, gradients_of_a_batch(*GetParam(), threads)) << threads << " threads, again";
    if (GetParam()->sums_follow_threads) continue;  // of each number its own
    EXPECT_EQ(one, several) << threads << " threads";
  }
}

// With many threads sums go by how many there are; a team that a neighbour has shrunk must add as the whole
// one does.
TEST_P(NetworkTest, ACrowdedTeamComputesTheSame) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  constexpr int kThreads = 6;
  while (crowding().use(kThreads, now()) < kThreads)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto whole = gradients_of_a_batch(*GetParam(), kThreads);
  for (int fewer = 1; fewer < kThreads; ++fewer) {
    crowding().learn(2, {.wall = 1, .cpu = 0.5, .lost = 1}, now());
    EXPECT_LT(crowding().use(kThreads, now()), kThreads);
    EXPECT_EQ(whole, gradients_of_a_batch(*GetParam(), kThreads)) << fewer << " fewer";
  }
}

TEST_P(NetworkTest, TapesReturnTheirMemory) {
  std::mt19937 rng(14);
  Network network({.channels = 1, .width = 8}, *GetParam(), 1);
  Parameters parameters(network, rng);
  const auto pointers = parameters.pointers(false);
  WeightSet weights;
  network.load(weights, pointers, {.backward = true});
  const std::vector<float> x = floats(random_values(rng, 2 * 16 * 16));
  std::vector<float> features(2 * 64);
  std::set<const float*> first;
  std::vector<std::size_t> sizes;
  std::vector<Buffer> others;
  for (int i = 0; i < 4; ++i) {
    // Had the last tape given its memory back to the system, it would be theirs now.
    for (const std::size_t size : sizes) others.emplace_back(size);
    const auto tape = network.train(weights, pointers, x.data(), 2, 16, 16, features.data());
    std::set<const float*> memory;
    for (const auto* list : {&tape->signs, &tape->activations}) {
      for (const Buffer& buffer : *list) {
        memory.insert(buffer.data());
        if (i == 0) sizes.push_back(buffer.size());
      }
    }
    if (i == 0) first = memory;
    EXPECT_EQ(memory, first);
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
