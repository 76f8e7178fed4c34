#include "data/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "data/shapes.h"

namespace ebclr::data {
namespace {

using ::testing::HasSubstr;

ImageSet shapes(int64_t count, bool gray = false) {
  return make_shapes({.size = gray ? 28 : 32, .gray = gray, .count = count, .seed = 3}, "train");
}

torch::Tensor rows(std::vector<int64_t> v) {
  return torch::tensor(v, torch::kInt64);
}

TEST(Views, DependOnlyOnSeedEpochImageAndView) {
  const auto set = shapes(20);
  const ViewMaker maker({.blur = 0.5}, 3, 32, 32);
  const auto all = make_views(maker, set, torch::arange(20), 7, 2, 1, 0);
  const auto some = make_views(maker, set, rows({13, 4}), 7, 2, 1, 99);
  EXPECT_TRUE(torch::equal(some[0], all[13]));
  EXPECT_TRUE(torch::equal(some[1], all[4]));
  for (const auto& other :
       {make_views(maker, set, rows({13}), 8, 2, 1, 0), make_views(maker, set, rows({13}), 7, 3, 1, 0),
        make_views(maker, set, rows({13}), 7, 2, 0, 0)})
    EXPECT_GT((other[0] - all[13]).abs().max().item<float>(), 0.1f);
}

TEST(Views, WithNothingToDoAreTheImage) {
  const auto set = shapes(3);
  const ViewMaker maker(
      {.crop_min = 1, .ratio_min = 1, .ratio_max = 1, .flip = 0, .jitter = 0, .grayscale = 0, .noise = 0}, 3,
      32, 32);
  const auto views = make_views(maker, set, torch::arange(3), 0, 0, 0, 0);
  EXPECT_LT((views - to_unit_range(set.pixels)).abs().max().item<float>(), 1e-5f);
}

TEST(Views, BatchScopeSharesTheTransformButNotTheNoise) {
  auto set = shapes(6);
  set.pixels = set.pixels[0].expand({6, 3, 32, 32}).contiguous();  // six times one image shows the transform
  ViewOptions options{.noise = 0, .scope = Scope::kBatch};
  const auto shared = make_views(ViewMaker(options, 3, 32, 32), set, torch::arange(6), 1, 0, 0, 4);
  for (int64_t i = 1; i < 6; ++i) EXPECT_TRUE(torch::equal(shared[i], shared[0]));
  const auto next = make_views(ViewMaker(options, 3, 32, 32), set, torch::arange(6), 1, 0, 0, 5);
  EXPECT_FALSE(torch::equal(next[0], shared[0]));
  options.noise = 0.03;
  const auto noisy = make_views(ViewMaker(options, 3, 32, 32), set, torch::arange(6), 1, 0, 0, 4);
  EXPECT_FALSE(torch::equal(noisy[1], noisy[0]));
  EXPECT_NEAR((noisy - shared).std().item<float>(), 0.06f, 0.002f);  // 0.03 in [0, 1] is 0.06 in [-1, 1]
  options.noise = 0;
  options.scope = Scope::kImage;
  const auto own = make_views(ViewMaker(options, 3, 32, 32), set, torch::arange(6), 1, 0, 0, 4);
  EXPECT_FALSE(torch::equal(own[1], own[0]));
}

TEST(Views, GreyImagesAreOnlyCroppedByDefault) {
  const ViewMaker plain({.blur = 1}, 1, 28, 28), full({.blur = 1, .gray_full = true}, 1, 28, 28);
  int flips = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    core::Rng a(i), b(i);
    const auto p = plain.draw(a), f = full.draw(b);
    EXPECT_FALSE(p.flip || p.jitter || p.grayscale || p.blur);
    EXPECT_FALSE(f.jitter || f.grayscale);
    EXPECT_TRUE(f.blur);
    flips += f.flip;
  }
  EXPECT_GT(flips, 10);
  EXPECT_LT(flips, 40);
}

TEST(Views, DrawsStayInTheirRanges) {
  const ViewMaker maker({.blur = 0.5}, 3, 32, 32);
  int flips = 0, jitters = 0, grays = 0, blurs = 0;
  std::set<std::array<uint8_t, 4>> orders;
  double area = 0;
  constexpr int kDraws = 4000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    core::Rng rng(i);
    const auto d = maker.draw(rng);
    ASSERT_GE(d.crop.top, 0);
    ASSERT_GE(d.crop.left, 0);
    ASSERT_GE(d.crop.height, 1);
    ASSERT_GE(d.crop.width, 1);
    ASSERT_LE(d.crop.top + d.crop.height, 32);
    ASSERT_LE(d.crop.left + d.crop.width, 32);
    const double ratio = static_cast<double>(d.crop.width) / static_cast<double>(d.crop.height);
    ASSERT_GT(ratio, 0.65);  // 3/4 and 4/3 up to rounding
    ASSERT_LT(ratio, 1.55);
    area += static_cast<double>(d.crop.height * d.crop.width) / 1024;
    flips += d.flip;
    jitters += d.jitter;
    grays += d.grayscale;
    blurs += d.blur;
    if (d.jitter) {
      orders.insert(d.order);
      ASSERT_TRUE(d.brightness >= 0.6f && d.brightness <= 1.4f && d.contrast >= 0.6f && d.contrast <= 1.4f);
      ASSERT_TRUE(d.saturation >= 0.6f && d.saturation <= 1.4f && d.hue >= -0.1f && d.hue <= 0.1f);
    }
    if (d.blur) {
      ASSERT_TRUE(d.blur_sigma >= 0.1 && d.blur_sigma <= 2);
    }
  }
  EXPECT_NEAR(flips, 0.5 * kDraws, 150);
  EXPECT_NEAR(jitters, 0.8 * kDraws, 150);
  EXPECT_NEAR(grays, 0.2 * kDraws, 150);
  EXPECT_NEAR(blurs, 0.5 * kDraws, 150);
  EXPECT_EQ(orders.size(), 24u);
  EXPECT_NEAR(area / kDraws, 0.52, 0.04);  // the largest areas are redrawn more often
}

TEST(Views, RejectsOptionsThatMakeNoSense) {
  const auto message = [](const ViewOptions& o) -> std::string {
    try {
      ViewMaker(o, 3, 32, 32);
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), core::ExitCode::kUsage);
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.crop_min = 0}), HasSubstr("[data.views] augment.crop_min is 0"));
  EXPECT_THAT(message({.crop_min = std::nan("")}), HasSubstr("crop_min is nan"));
  EXPECT_THAT(message({.crop_min = 0.5, .crop_max = 0.4}), HasSubstr("crop_max"));
  EXPECT_THAT(message({.flip = 1.5}), HasSubstr("augment.flip is 1.5; expected 0 to 1"));
  EXPECT_THAT(message({.hue = 0.7}), HasSubstr("augment.hue"));
  EXPECT_THAT(message({.blur = 1, .blur_kernel = 4}), HasSubstr("an odd number"));
  EXPECT_THAT(message({.blur = 1, .blur_kernel = 99}), HasSubstr("blur_kernel"));
  EXPECT_THAT(message({.noise = -1}), HasSubstr("augment.noise"));
  EXPECT_EQ(message({}), "accepted");
  EXPECT_THROW(ViewMaker({}, 2, 32, 32), core::Error);
}

TEST(Views, RejectsForeignIndicesAndSizes) {
  const auto set = shapes(4);
  EXPECT_THROW(make_views(ViewMaker({}, 3, 32, 32), set, rows({4}), 0, 0, 0, 0), core::Error);
  EXPECT_THROW(make_views(ViewMaker({}, 3, 28, 28), set, rows({0}), 0, 0, 0, 0), core::Error);
}

}  // namespace
}  // namespace ebclr::data
