#include "data/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ebclr::data {

namespace {

constexpr std::string_view kViewsComponent = "data.views";

void check(bool good, std::string_view option, double value, std::string_view expected) {
  if (!good)
    core::usage_error(kViewsComponent, fmt::format("augment.{} is {}; expected {}", option, value, expected));
}

void check_probability(std::string_view option, double p) {
  check(p >= 0 && p <= 1, option, p, "0 to 1");
}

// Uniform over [low, high) in double, as torchvision's parameters are drawn.
double uniform(core::Rng& rng, double low, double high) {
  return low + (high - low) * rng.uniform64();
}

Crop draw_crop(const ViewOptions& o, int64_t height, int64_t width, core::Rng& rng) {
  const auto area = static_cast<double>(height * width);
  const double log_low = std::log(o.ratio_min), log_high = std::log(o.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * uniform(rng, o.crop_min, o.crop_max);
    const double ratio = std::exp(uniform(rng, log_low, log_high));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const auto top = static_cast<int64_t>(rng.below(height - h + 1));
    const auto left = static_cast<int64_t>(rng.below(width - w + 1));
    return {.top = top, .left = left, .height = h, .width = w};
  }
  // No luck: the largest central crop whose ratio is allowed.
  int64_t h = height, w = width;
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < o.ratio_min) {
    h = std::clamp<int64_t>(std::llround(static_cast<double>(w) / o.ratio_min), 1, height);
  } else if (ratio > o.ratio_max) {
    w = std::clamp<int64_t>(std::llround(static_cast<double>(h) * o.ratio_max), 1, width);
  }
  return {.top = (height - h) / 2, .left = (width - w) / 2, .height = h, .width = w};
}

}  // namespace

const torch::Tensor& view_source(const ImageSet& set) {
  return set.large.defined() ? set.large : set.pixels;
}

ViewMaker::ViewMaker(const ViewOptions& options, int64_t channels, int64_t height, int64_t width)
    : ViewMaker(options, channels, height, width, {height, width}) {}

ViewMaker::ViewMaker(const ViewOptions& options, const ImageSet& set)
    : ViewMaker(options, set.channels(), set.height(), set.width(),
                {view_source(set).size(2), view_source(set).size(3)}) {}

ViewMaker::ViewMaker(const ViewOptions& options, int64_t channels, int64_t height, int64_t width,
                     Plane source)
    : options_(options), channels_(channels), height_(height), width_(width), source_(source) {
  const auto& o = options_;
  if (channels != 1 && channels != 3)
    core::usage_error(kViewsComponent, fmt::format("images have {} channels; expected 1 or 3", channels));
  if (height < 1 || width < 1)
    core::usage_error(kViewsComponent,
                      fmt::format("images are {} x {}; expected at least 1 x 1", height, width));
  check(o.crop_min > 0 && o.crop_min <= 1, "crop_min", o.crop_min, "above 0, at most 1");
  check(o.crop_max >= o.crop_min && o.crop_max <= 1, "crop_max", o.crop_max, "crop_min to 1");
  check(o.ratio_min > 0 && std::isfinite(o.ratio_min), "ratio_min", o.ratio_min, "above 0");
  check(o.ratio_max >= o.ratio_min && std::isfinite(o.ratio_max), "ratio_max", o.ratio_max,
        "at least ratio_min");
  check_probability("flip", o.flip);
  check_probability("jitter", o.jitter);
  check_probability("grayscale", o.grayscale);
  check_probability("blur", o.blur);
  for (const auto& [name, value] : {std::pair{"brightness", o.brightness}, std::pair{"contrast", o.contrast},
                                    std::pair{"saturation", o.saturation}, std::pair{"noise", o.noise}})
    check(value >= 0 && std::isfinite(value), name, value, "0 or more");
  check(o.hue >= 0 && o.hue <= 0.5, "hue", o.hue, "0 to 0.5");
  if (o.blur > 0) {
    check(o.blur_kernel >= 1 && o.blur_kernel % 2 == 1, "blur_kernel", o.blur_kernel, "an odd number");
    check(o.blur_kernel / 2 < std::min(height, width), "blur_kernel", o.blur_kernel,
          fmt::format("less than twice the image's side ({})", std::min(height, width)));
    check(o.blur_sigma_min > 0, "blur_sigma_min", o.blur_sigma_min, "above 0");
    check(o.blur_sigma_max >= o.blur_sigma_min && std::isfinite(o.blur_sigma_max), "blur_sigma_max",
          o.blur_sigma_max, "at least blur_sigma_min");
  }
}

ViewDraw ViewMaker::draw(core::Rng& rng) const {
  const auto& o = options_;
  const bool colour = channels_ == 3;
  ViewDraw d;
  d.crop = draw_crop(o, source_.height, source_.width, rng);
  if (colour || o.gray_full) d.flip = rng.bernoulli(o.flip);
  if (colour) {
    d.jitter = rng.bernoulli(o.jitter);
    if (d.jitter) {
      for (uint64_t i = 3; i > 0; --i) std::swap(d.order[i], d.order[rng.below(i + 1)]);
      const auto factor = [&](double strength) {
        return static_cast<float>(uniform(rng, std::max(0.0, 1 - strength), 1 + strength));
      };
      d.brightness = factor(o.brightness);
      d.contrast = factor(o.contrast);
      d.saturation = factor(o.saturation);
      d.hue = static_cast<float>(uniform(rng, -o.hue, o.hue));
    }
    d.grayscale = rng.bernoulli(o.grayscale);
  }
  if (colour || o.gray_full) {
    d.blur = rng.bernoulli(o.blur);
    if (d.blur) d.blur_sigma = uniform(rng, o.blur_sigma_min, o.blur_sigma_max);
  }
  return d;
}

void ViewMaker::render(const uint8_t* pixels, const ViewDraw& draw, const core::Rng& noise,
                       float* out) const {
  const int64_t area = height_ * width_, n = channels_ * area;
  thread_local std::vector<float> image, normals;
  image.resize(n);
  crop_resize(pixels, channels_, source_, draw.crop, draw.flip, {height_, width_}, image.data());
  if (draw.jitter) {
    for (uint8_t op : draw.order) {
      if (op == 0 && options_.brightness > 0) adjust_brightness(image.data(), n, draw.brightness);
      if (op == 1 && options_.contrast > 0) adjust_contrast(image.data(), area, draw.contrast);
      if (op == 2 && options_.saturation > 0) adjust_saturation(image.data(), area, draw.saturation);
      if (op == 3 && options_.hue > 0) adjust_hue(image.data(), area, draw.hue);
    }
  }
  if (draw.grayscale) to_grayscale(image.data(), area);
  normals.resize(n);  // also the blur's scratch
  if (draw.blur)
    gaussian_blur(image.data(), channels_, height_, width_, options_.blur_kernel, draw.blur_sigma,
                  normals.data());
  if (options_.noise > 0) core::fill_normal(noise.key(), noise.counter(), normals);
  finish(image.data(), normals.data(), n, static_cast<float>(options_.noise), out);
}

void ViewMaker::make(const uint8_t* pixels, core::Rng transform, core::Rng noise, float* out) const {
  render(pixels, draw(transform), noise, out);
}

// The third part tells the streams of images, noise and batches apart.
core::Rng ViewKey::transform(Scope scope) const {
  if (scope == Scope::kBatch) return core::Rng(seed, core::Stream::kViews, {epoch, 2, batch, view});
  return core::Rng(seed, core::Stream::kViews, {epoch, 0, image, view});
}

core::Rng ViewKey::noise() const {
  return core::Rng(seed, core::Stream::kViews, {epoch, 1, image, view});
}

torch::Tensor make_views(const ViewMaker& maker, const ImageSet& set, const torch::Tensor& indices,
                         uint64_t seed, uint64_t epoch, uint64_t view, uint64_t batch_number) {
  const auto pixels = view_source(set).contiguous();
  if (set.size() == 0 || set.channels() != maker.channels() || set.height() != maker.height() ||
      set.width() != maker.width() || pixels.size(2) != maker.source().height ||
      pixels.size(3) != maker.source().width)
    core::usage_error(kViewsComponent,
                      fmt::format("the set's images do not have the {} x {} x {} that views are made of",
                                  maker.channels(), maker.height(), maker.width()));
  const auto rows = indices.to(torch::kCPU, torch::kInt64).contiguous();
  const int64_t count = rows.numel(), n = maker.channels() * maker.height() * maker.width();
  const int64_t stride = maker.channels() * maker.source().height * maker.source().width;
  auto out = torch::empty({count, maker.channels(), maker.height(), maker.width()}, torch::kFloat32);
  const auto* index = rows.data_ptr<int64_t>();
  const auto* bytes = pixels.data_ptr<uint8_t>();
  auto* values = out.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= set.size())
      core::usage_error(kViewsComponent, fmt::format("image {} of a set of {}", index[i], set.size()));
    const ViewKey key{.seed = seed,
                      .epoch = epoch,
                      .image = static_cast<uint64_t>(index[i]),
                      .view = view,
                      .batch = batch_number};
    maker.make(bytes + index[i] * stride, key.transform(maker.options().scope), key.noise(), values + i * n);
  }
  return out;
}

}  // namespace ebclr::data
