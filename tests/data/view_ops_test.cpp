// The pixel operations against torchvision's results.
#include "data/view_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/npy.h"
#include "core/rng.h"

namespace ebclr::data {
namespace {

constexpr double kTolerance = 2e-5;

torch::Tensor golden(const std::string& name) {
  return core::read_npy(std::string(EBCLR_GOLDEN_DIR) + "/aug." + name + ".npy").contiguous();
}

double worst(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(ViewOps, CropsMatchTorchvision) {
  const auto image = golden("image"), crops = golden("crops"), expected = golden("cropped");
  const auto* c = crops.data_ptr<int64_t>();
  for (int64_t i = 0; i < crops.size(0); ++i) {
    auto out = torch::empty({3, 32, 32});
    crop_resize(image.data_ptr<float>(), 3, {32, 32}, {c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]},
                false, {32, 32}, out.data_ptr<float>());
    EXPECT_LT(worst(out, expected[i]), kTolerance) << "crop " << i;
  }
}

TEST(ViewOps, CropsOfGreyImagesMatchTorchvision) {
  const auto crops = golden("crops"), expected = golden("gray_cropped");
  auto gray = golden("image").clone();
  to_grayscale(gray.data_ptr<float>(), 32 * 32);
  const auto* c = crops.data_ptr<int64_t>();
  for (int64_t i = 0; i < crops.size(0); ++i) {
    auto out = torch::empty({1, 32, 32});
    crop_resize(gray.data_ptr<float>(), 1, {32, 32}, {c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]},
                false, {32, 32}, out.data_ptr<float>());
    EXPECT_LT(worst(out, expected[i]), kTolerance) << "crop " << i;
  }
}

TEST(ViewOps, FlipMatchesTorchvision) {
  const auto image = golden("image");
  auto out = torch::empty({3, 32, 32});
  crop_resize(image.data_ptr<float>(), 3, {32, 32}, {0, 0, 32, 32}, true, {32, 32}, out.data_ptr<float>());
  EXPECT_LT(worst(out, golden("flipped")), kTolerance);
}

TEST(ViewOps, BytesCountAsParts255) {
  const auto bytes = torch::randint(0, 256, {3, 32, 32}, torch::kUInt8);
  const auto floats = bytes.to(torch::kFloat32) / 255;
  auto a = torch::empty({3, 32, 32}), b = torch::empty({3, 32, 32});
  crop_resize(bytes.data_ptr<uint8_t>(), 3, {32, 32}, {3, 5, 17, 11}, true, {32, 32}, a.data_ptr<float>());
  crop_resize(floats.data_ptr<float>(), 3, {32, 32}, {3, 5, 17, 11}, true, {32, 32}, b.data_ptr<float>());
  EXPECT_LT(worst(a, b), 1e-6);
}

using Adjust = void (*)(float*, int64_t, float);

void expect_adjusted(const std::string& name, const std::vector<float>& factors, Adjust adjust, int64_t n) {
  const auto expected = golden(name);
  ASSERT_EQ(expected.size(0), static_cast<int64_t>(factors.size()));
  for (size_t i = 0; i < factors.size(); ++i) {
    auto image = golden("image").clone();
    adjust(image.data_ptr<float>(), n, factors[i]);
    EXPECT_LT(worst(image, expected[static_cast<int64_t>(i)]), kTolerance) << name << " " << factors[i];
  }
}

TEST(ViewOps, BrightnessMatchesTorchvision) {
  expect_adjusted("brightness", {0.2f, 0.7f, 1.8f}, adjust_brightness, 3 * 32 * 32);
}
TEST(ViewOps, ContrastMatchesTorchvision) {
  expect_adjusted("contrast", {0.2f, 0.7f, 1.8f}, adjust_contrast, 32 * 32);
}
TEST(ViewOps, SaturationMatchesTorchvision) {
  expect_adjusted("saturation", {0.2f, 0.7f, 1.8f}, adjust_saturation, 32 * 32);
}
TEST(ViewOps, HueMatchesTorchvision) {
  expect_adjusted("hue", {-0.2f, 0.05f, 0.2f}, adjust_hue, 32 * 32);
}

TEST(ViewOps, HueTurnsPrimariesIntoEachOther) {
  // Red, green, blue, white and a grey, one pixel each; a third of a circle maps red to green to blue.
  std::vector<float> image = {1, 0, 0, 1, 0.25f, 0, 1, 0, 1, 0.25f, 0, 0, 1, 1, 0.25f};
  adjust_hue(image.data(), 5, 1.0f / 3);
  const std::vector<float> expected = {0, 0, 1, 1, 0.25f, 1, 0, 0, 1, 0.25f, 0, 1, 0, 1, 0.25f};
  for (size_t i = 0; i < image.size(); ++i) EXPECT_NEAR(image[i], expected[i], 1e-5) << i;
}

TEST(ViewOps, GrayscaleMatchesTorchvision) {
  auto image = golden("image").clone();
  to_grayscale(image.data_ptr<float>(), 32 * 32);
  EXPECT_LT(worst(image, golden("grayscale")), kTolerance);
}

TEST(ViewOps, BlurMatchesTorchvision) {
  const auto expected = golden("blur3");
  const std::vector<double> sigmas = {0.1, 0.5, 1.0, 2.0};
  std::vector<float> scratch(32 * 32);
  for (size_t i = 0; i < sigmas.size(); ++i) {
    auto image = golden("image").clone();
    gaussian_blur(image.data_ptr<float>(), 3, 32, 32, 3, sigmas[i], scratch.data());
    EXPECT_LT(worst(image, expected[static_cast<int64_t>(i)]), kTolerance) << "sigma " << sigmas[i];
  }
}

TEST(ViewOps, WideBlurKeepsTheMean) {
  auto image = torch::full({1, 9, 9}, 0.3f);
  std::vector<float> scratch(81);
  gaussian_blur(image.data_ptr<float>(), 1, 9, 9, 7, 1.5, scratch.data());
  EXPECT_LT((image - 0.3).abs().max().item<double>(), 1e-6);
}

TEST(ViewOps, FinishScalesAndAddsNoise) {
  const std::vector<float> image = {0, 0.5f, 1}, noise = {1, -1, 2};
  std::vector<float> out(3);
  finish(image.data(), noise.data(), 3, 0.1f, out.data());
  EXPECT_NEAR(out[0], -0.8, 1e-6);
  EXPECT_NEAR(out[1], -0.2, 1e-6);
  EXPECT_NEAR(out[2], 1.4, 1e-6);
  finish(image.data(), nullptr, 3, 0, out.data());
  EXPECT_EQ(out, (std::vector<float>{-1, 0, 1}));
}

TEST(Noise, IsBoxMullerOfPhilox) {
  std::vector<float> v(4096);
  core::fill_normal(77, 0, v);
  for (size_t i = 0; i < v.size(); i += 2) {
    const auto w = core::philox4x32(77, i / 4, 1);
    const double u = ((w[i % 4] >> 8) + 1.0) * 0x1p-24, angle = (w[i % 4 + 1] >> 8) * 0x1p-24 * 2 * M_PI;
    const double radius = std::sqrt(-2 * std::log(u));
    ASSERT_NEAR(v[i], radius * std::cos(angle), 2e-6) << i;
    ASSERT_NEAR(v[i + 1], radius * std::sin(angle), 2e-6) << i;
  }
}

TEST(Noise, DoesNotDependOnThePartition) {
  std::vector<float> whole(2000), parts(2000);
  core::fill_normal(5, 13, whole);
  for (size_t at = 0, step = 1; at < parts.size(); at += step, step = step * 3 % 401 + 1) {
    step = std::min(step, parts.size() - at);
    core::fill_normal(5, 13 + at, std::span(parts).subspan(at, step));
  }
  EXPECT_EQ(whole, parts);
}

TEST(Noise, IsStandardNormal) {
  std::vector<float> v(400000);
  core::fill_normal(9, 0, v);
  double m = 0, s = 0, k = 0;
  int64_t beyond = 0;
  for (double x : v) {
    m += x;
    s += x * x;
    k += x * x * x * x;
    beyond += std::abs(x) > 1.959964;
  }
  const auto n = static_cast<double>(v.size());
  EXPECT_NEAR(m / n, 0, 0.008);
  EXPECT_NEAR(s / n, 1, 0.012);
  EXPECT_NEAR(k / n, 3, 0.09);
  EXPECT_NEAR(static_cast<double>(beyond) / n, 0.05, 0.002);
}

}  // namespace
}  // namespace ebclr::data
