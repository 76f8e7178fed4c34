#include "data/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <thread>

#include "core/error.h"
#include "core/rng.h"
#include "core/threads.h"

namespace ebclr::data {

namespace {

constexpr int kClasses = 10;
constexpr float kPi = std::numbers::pi_v<float>;
const std::vector<std::string> kNames = {"disc", "ring",     "square",    "triangle", "cross",
                                         "star", "crescent", "hourglass", "bars",     "angle"};

struct Point {
  float x, y;
};

float length(Point p) {
  return std::sqrt(p.x * p.x + p.y * p.y);
}

// Signed distances (negative inside) of shapes of about unit radius around the origin.
float box(Point p, float half_x, float half_y) {
  return std::max(std::abs(p.x) - half_x, std::abs(p.y) - half_y);
}

// A convex polygon's upper bound of the distance, from the half planes of `n` sides at distance `inner`.
float polygon(Point p, int n, float inner) {
  float d = -1e9f;
  for (int i = 0; i < n; ++i) {
    const float a = 2 * kPi * (static_cast<float>(i) + 0.5f) / static_cast<float>(n);
    d = std::max(d, p.x * std::sin(a) + p.y * std::cos(a) - inner);
  }
  return d;
}

float star(Point p) {
  // In the sector of one point of the star the outline is a single line.
  const float sector = 2 * kPi / 5;
  float a = std::atan2(p.x, p.y);
  a = std::abs(a - sector * std::round(a / sector));
  const float r = length(p);
  const Point q{r * std::sin(a), r * std::cos(a)};
  const Point tip{0, 1.1f}, notch{0.42f * std::sin(sector / 2), 0.42f * std::cos(sector / 2)};
  const Point edge{notch.x - tip.x, notch.y - tip.y};
  return (edge.x * (q.y - tip.y) - edge.y * (q.x - tip.x)) / length(edge);
}

float distance(int shape, Point p) {
  switch (shape) {
    case 0:
      return length(p) - 0.85f;
    case 1:
      return std::abs(length(p) - 0.72f) - 0.22f;
    case 2:
      return box(p, 0.76f, 0.76f);
    case 3:
      return polygon(p, 3, 0.52f);
    case 4:
      return std::min(box(p, 0.95f, 0.28f), box(p, 0.28f, 0.95f));
    case 5:
      return star(p);
    case 6:
      return std::max(length(p) - 0.9f, 0.72f - length({p.x - 0.42f, p.y}));
    case 7:
      return std::max(std::abs(p.x) - std::abs(p.y), std::abs(p.y) - 0.82f) * 0.8f;
    case 8:
      return std::min(box({p.x, p.y - 0.5f}, 0.9f, 0.25f), box({p.x, p.y + 0.5f}, 0.9f, 0.25f));
    default:
      return std::min(box({p.x + 0.5f, p.y}, 0.27f, 0.85f), box({p.x, p.y + 0.58f}, 0.77f, 0.27f));
  }
}

using Colour = std::array<float, 3>;

Colour draw_colour(core::Rng& rng) {
  return {rng.uniform(), rng.uniform(), rng.uniform()};
}

float luminance(const Colour& c) {
  return 0.2989f * c[0] + 0.587f * c[1] + 0.114f * c[2];
}

// Two colours mixed by a pattern: stripes, checks, blobs or a slope.
struct Texture {
  Colour a, b;
  int kind;
  float frequency, angle, phase_x, phase_y;

  Texture(core::Rng& rng, const Colour& base, float variation) : a(base), b(base) {
    for (float& v : b) v = std::clamp(v + rng.uniform(-variation, variation), 0.0f, 1.0f);
    kind = static_cast<int>(rng.below(4));
    frequency = rng.uniform(2.0f, 7.0f);
    angle = rng.uniform(0.0f, 2 * kPi);
    phase_x = rng.uniform(0.0f, 2 * kPi);
    phase_y = rng.uniform(0.0f, 2 * kPi);
  }

  // p in [-1, 1]^2
  Colour at(Point p) const {
    const float c = std::cos(angle), s = std::sin(angle);
    const float u = frequency * (c * p.x + s * p.y) + phase_x, v = frequency * (c * p.y - s * p.x) + phase_y;
    float t = 0;
    if (kind == 0) t = 0.5f + 0.5f * std::sin(u);
    if (kind == 1) t = std::sin(u) * std::sin(v) > 0 ? 1.0f : 0.0f;
    if (kind == 2) t = 0.5f + 0.25f * (std::sin(u + 1.3f * std::sin(v)) + std::sin(1.7f * v + 0.6f * u));
    if (kind == 3) t = std::clamp(0.5f + 0.5f * (c * p.x + s * p.y), 0.0f, 1.0f);
    return {a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]), a[2] + t * (b[2] - a[2])};
  }
};

// Draws one image as CHW bytes.
void paint(int shape, const ShapesOptions& o, core::Rng rng, uint8_t* out) {
  Colour ground = draw_colour(rng), body = draw_colour(rng);
  // The body must differ from its ground in lightness, else a grey image would show nothing.
  while (std::abs(luminance(ground) - luminance(body)) < 0.25f) body = draw_colour(rng);
  const Texture back(rng, ground, 0.35f), front(rng, body, 0.2f);
  const float radius = rng.uniform(0.42f, 0.8f);
  const float reach = 0.95f - 0.8f * radius;
  const Point centre{rng.uniform(-reach, reach), rng.uniform(-reach, reach)};
  // Turned by up to 30 degrees either way; bars and hourglass also lie on their side.
  const float turn = rng.uniform(-kPi / 6, kPi / 6) + kPi / 2 * static_cast<float>(rng.below(4));
  const float stretch = rng.uniform(0.85f, 1.18f);
  const bool mirrored = rng.bernoulli(0.5);
  const float light_angle = rng.uniform(0.0f, 2 * kPi), light = rng.uniform(0.0f, 0.25f);
  const float grain = rng.uniform(0.01f, 0.06f);
  const uint64_t grain_key = rng.next_u64();

  const int64_t n = o.size, channels = o.gray ? 1 : 3;
  std::vector<float> normals(n * n * channels);
  core::fill_normal(grain_key, 0, normals);
  const float pixel = 2.0f / static_cast<float>(n), c = std::cos(turn), s = std::sin(turn);
  for (int64_t y = 0; y < n; ++y) {
    for (int64_t x = 0; x < n; ++x) {
      const Point p{(static_cast<float>(x) + 0.5f) * pixel - 1, (static_cast<float>(y) + 0.5f) * pixel - 1};
      const float dx = (p.x - centre.x) / radius, dy = (p.y - centre.y) / radius;
      Point q{(c * dx + s * dy) * stretch, (c * dy - s * dx) / stretch};
      if (mirrored) q.x = -q.x;
      const float cover = std::clamp(0.5f - distance(shape, q) * radius / pixel, 0.0f, 1.0f);
      const Colour under = back.at(p), over = front.at(q);
      const float shade = 1 + light * (std::cos(light_angle) * p.x + std::sin(light_angle) * p.y);
      Colour v;
      for (int k = 0; k < 3; ++k) v[k] = (under[k] + cover * (over[k] - under[k])) * shade;
      if (o.gray) v[0] = luminance(v);
      for (int64_t k = 0; k < channels; ++k) {
        const int64_t at = (k * n + y) * n + x;
        out[at] =
            static_cast<uint8_t>(std::clamp((v[k] + grain * normals[at]) * 255.0f + 0.5f, 0.0f, 255.0f));
      }
    }
  }
}

}  // namespace

ImageSet make_shapes(const ShapesOptions& o, const std::string& split) {
  if (o.size < 16 || o.size > 512)
    core::usage_error("data.shapes", fmt::format("image size is {}; expected 16 to 512", o.size));
  if (o.count < 1 || o.count > 10'000'000)
    core::usage_error("data.shapes", fmt::format("{} images asked for; expected 1 to 10000000", o.count));
  ImageSet set;
  set.name = fmt::format("shapes{}{}", o.size == 32 ? "" : std::to_string(o.size), o.gray ? "-gray" : "");
  set.split = split;
  set.class_names = kNames;
  const int64_t channels = o.gray ? 1 : 3;
  set.pixels = torch::empty({o.count, channels, o.size, o.size}, torch::kUInt8);
  set.labels = torch::empty({o.count}, torch::kInt64);
  auto* pixels = set.pixels.data_ptr<uint8_t>();
  auto* labels = set.labels.data_ptr<int64_t>();
  const uint64_t part = split == "test" ? 1 : 0;
  const int64_t image_bytes = channels * o.size * o.size;
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // Each ten images are a seeded permutation of the classes.
      std::array<int, kClasses> order{};
      for (int k = 0; k < kClasses; ++k) order[k] = k;
      core::Rng shuffle(o.seed, core::Stream::kShapes, {part, 0, static_cast<uint64_t>(i / kClasses)});
      for (uint64_t k = kClasses - 1; k > 0; --k) std::swap(order[k], order[shuffle.below(k + 1)]);
      const int shape = order[i % kClasses];
      labels[i] = shape;
      paint(shape, o, core::Rng(o.seed, core::Stream::kShapes, {part, 1, static_cast<uint64_t>(i)}),
            pixels + i * image_bytes);
    }
  };
  const int64_t threads =
      std::min<int64_t>(o.threads > 0 ? o.threads : core::available_cores(), (o.count + 63) / 64);
  std::vector<std::thread> pool;
  for (int64_t t = 0; t < threads; ++t)
    pool.emplace_back(work, o.count * t / threads, o.count * (t + 1) / threads);
  for (auto& t : pool) t.join();
  return set;
}

}  // namespace ebclr::data
