#include "plot/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/files.h"
#include "image/decode.h"
#include "plot/canvas.h"
#include "plot/ticks.h"

namespace ebclr::plot {
namespace {

using Pixel = std::array<uint8_t, 3>;

Pixel at(const Image& image, int x, int y) {
  const size_t i = (size_t(y) * image.width + x) * 3;
  return {image.rgb[i], image.rgb[i + 1], image.rgb[i + 2]};
}

int count(const Image& image, Pixel wanted) {
  int n = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) n += at(image, x, y) == wanted;
  }
  return n;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const core::Error& e) {
    return e.what();
  }
  return "";
}

TEST(Ticks, AreRoundAndHoldTheRange) {
  const Axis a = make_axis(0.137, 0.921, 5, false, true);
  EXPECT_LE(a.low, 0.137);
  EXPECT_GE(a.high, 0.921);
  EXPECT_NEAR(a.ticks[1] - a.ticks[0], 0.2, 1e-12);
  EXPECT_EQ(tick_label(0.2, 0.2), "0.2");
  EXPECT_EQ(tick_label(0.25, 0.25), "0.25");
  EXPECT_EQ(tick_label(1200, 200), "1200");
  EXPECT_EQ(tick_label(0, 200), "0");
  const Axis log = make_axis(3e-4, 0.5, 5, true, true);
  EXPECT_DOUBLE_EQ(log.low, 1e-4);
  EXPECT_DOUBLE_EQ(log.high, 1);
  EXPECT_DOUBLE_EQ(log.place(1e-2), 0.5);
  const Axis flat = make_axis(2, 2, 5, false, true);
  EXPECT_LT(flat.low, 2);
  EXPECT_GT(flat.high, 2);
}

TEST(LineChart, DrawsEachSeriesInItsColour) {
  const Image image = line_chart({{"a", {0, 1, 2}, {0, 1, 0}}, {"b", {0, 1, 2}, {1, 0, 1}}}, {.title = "t"});
  EXPECT_EQ(image.width, 1440);
  EXPECT_EQ(image.height, 880);
  EXPECT_GT(count(image, colour(0)), 500);
  EXPECT_GT(count(image, colour(1)), 500);
  EXPECT_EQ(count(image, colour(2)), 0);
}

TEST(LineChart, BreaksAtNanAndSurvivesEmptyInput) {
  const double nan = std::nan("");
  const Image whole = line_chart({{"", {0, 1, 2, 3, 4}, {0, 1, 1, 1, 0}}});
  const Image broken = line_chart({{"", {0, 1, 2, 3, 4}, {0, 1, nan, 1, 0}}});
  EXPECT_LT(count(broken, colour(0)), count(whole, colour(0)) * 0.8);
  EXPECT_GT(line_chart({}).width, 0);
  EXPECT_GT(line_chart({{"a", {}, {}}}).width, 0);
  EXPECT_GT(line_chart({{"a", {1}, {nan}}}).width, 0);
  EXPECT_GT(count(line_chart({{"", {1}, {2}}}), colour(0)), 50);  // a single point is a dot
  EXPECT_GT(line_chart({{"a", {1, 10}, {-1, 1e-3}}}, {.log_x = true, .log_y = true}).width, 0);
}

TEST(LineChart, RefusesUnequalCounts) {
  EXPECT_THAT(error_of([] {
                line_chart({{"loss", {1, 2}, {1}}});
              }),
              testing::HasSubstr("series 'loss' has 2 x, 1 y"));
}

TEST(Confusion, ShadesByShareOfTheRow) {
  // Row 0 all right (rare), row 1 all wrong (frequent): both full cells must have the same colour.
  const auto counts = torch::tensor({3, 0, 900, 0}, torch::kInt64).view({2, 2});
  const Image image = confusion_matrix(counts, {"", ""}, "");
  // Corners of cells (two pixels per point, left 38, top 16, side 42), away from the numbers.
  const Pixel right = at(image, (38 + 4) * 2, (16 + 4) * 2),
              wrong = at(image, (38 + 4) * 2, (16 + 42 + 4) * 2);
  EXPECT_EQ(right, wrong);
  EXPECT_NE(right, at(image, (38 + 42 + 4) * 2, (16 + 4) * 2));
  EXPECT_THAT(error_of([] { confusion_matrix(torch::zeros({2, 3}), {}); }), testing::HasSubstr("square"));
}

TEST(Scatter, ColoursByLabel) {
  const auto points = torch::tensor({0.f, 0.f, 1.f, 1.f, 0.f, 1.f}).view({3, 2});
  const Image image = scatter_map(points, torch::tensor({0, 1, -1}, torch::kInt64), {"cat", "dog"});
  EXPECT_GT(count(image, colour(0)), 50);
  EXPECT_GT(count(image, colour(1)), 50);
  EXPECT_GT(count(image, colour(-1)), 20);
  EXPECT_EQ(count(image, colour(2)), 0);
  EXPECT_GT(scatter_map(torch::zeros({2, 2}), torch::zeros({2}, torch::kInt64), {"a"}).width, 0);
}

TEST(Grid, PlacesPixelsExactly) {
  auto images = torch::zeros({3, 3, 2, 2}, torch::kUInt8);
  images[0][0].fill_(255);   // red
  images[1][1].fill_(255);   // green
  images[2][2][1][0] = 200;  // one blue pixel, lower left
  const Image image = image_grid(images, 2, 5);
  EXPECT_EQ(image.width, 12 + 10 + 4 + 10 + 12);
  EXPECT_EQ(image.height, 12 + 10 + 4 + 10 + 12);
  EXPECT_EQ(at(image, 12, 12), (Pixel{255, 0, 0}));
  EXPECT_EQ(at(image, 26, 12), (Pixel{0, 255, 0}));
  EXPECT_EQ(at(image, 12 + 4, 26 + 5), (Pixel{0, 0, 200}));
  EXPECT_EQ(at(image, 12 + 5, 26 + 5), (Pixel{0, 0, 0}));
  EXPECT_EQ(at(image, 30, 30), (Pixel{255, 255, 255}));  // no fourth image
}

TEST(Grid, ScalesFloatsAndClampsThem) {
  const auto images = torch::tensor({-1.f, 0.f, 1.f, 3.f, std::nanf("")}).view({5, 1, 1, 1});
  const Image image = image_grid(images, 5, 1);
  EXPECT_EQ(at(image, 12, 12), (Pixel{0, 0, 0}));
  EXPECT_EQ(at(image, 17, 12), (Pixel{128, 128, 128}));
  EXPECT_EQ(at(image, 22, 12), (Pixel{255, 255, 255}));
  EXPECT_EQ(at(image, 27, 12), (Pixel{255, 255, 255}));
  EXPECT_EQ(at(image, 32, 12), (Pixel{128, 128, 128}));
  EXPECT_THAT(error_of([] { image_grid(torch::zeros({1, 2, 4, 4}), 1); }), testing::HasSubstr("C 1 or 3"));
}

TEST(Png, ReadsBackAsWritten) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ebclr_plot_test_" + std::to_string(getpid()));
  Image image{2, 1, {10, 20, 30, 200, 150, 100}};
  write_png(folder / "deep" / "a.png", image);
  const auto read = image::decode(core::read_bytes(folder / "deep" / "a.png", "test"), "a.png");
  ASSERT_EQ(read.width, 2);
  EXPECT_EQ(read.data, image.rgb);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(error_of([] { encode_png({}); }), testing::HasSubstr("[plot]"));
}

TEST(Histogram, HigherWhereThereIsMore) {
  Sample skewed{"s", {}};
  for (int i = 0; i < 90; ++i) skewed.values.push_back(0.1);
  for (int i = 0; i < 10; ++i) skewed.values.push_back(0.9);
  const Image image = histogram({skewed}, 2);
  auto ink = [&](int from, int to) {
    int n = 0;
    for (int y = 0; y < 800; ++y) {
      for (int x = from; x < to; ++x)
        n += at(image, x, y)[0] < 220 && at(image, x, y)[2] > at(image, x, y)[0] + 20;
    }
    return n;
  };
  EXPECT_GT(ink(0, 720), 4 * ink(760, 1440));
  EXPECT_GT(histogram({}, 10).width, 0);
  EXPECT_GT(histogram({{"same", {2, 2, 2}}}, 10).width, 0);
}

TEST(Grid, HeadsStandOnceAndTitlesWrap) {
  const auto images = torch::zeros({4, 3, 16, 16}, torch::kUInt8);
  const Image bare = image_grid(images, {.columns = 2});
  const Image headed =
      image_grid(images, {.columns = 2, .column_heads = {"image", "view"}, .row_heads = {"a", "b"}});
  EXPECT_GT(headed.width, bare.width);
  EXPECT_EQ(headed.height, bare.height + 24);
  const Image one = image_grid(images, {.columns = 2, .title = "short"});
  const Image two = image_grid(
      images, {.columns = 2, .title = "a heading that is far too long for one line of a narrow sheet"});
  EXPECT_GT(two.height, one.height);
  EXPECT_EQ(two.width, one.width);
}

TEST(Text, FitsAndBreaksAtCharacters) {
  const std::string name =
      "gr\xC3\xB6\xC3\x9F"
      "er/very_long_directory/picture_0001.jpg";
  const auto middle = Canvas::fit_middle(name, 80, 6);
  EXPECT_LE(Canvas::text_width(middle, 6), 80);
  EXPECT_THAT(middle, testing::EndsWith("1.jpg"));
  for (double width = 5; width < 60; width += 3) {
    const auto cut =
        Canvas::fit("\xC3\xB6\xC3\xB6\xC3\xB6\xC3\xB6\xC3\xB6\xC3\xB6\xC3\xB6\xC3\xB6", width, 6);
    EXPECT_LE(Canvas::text_width(cut, 6), width);
    EXPECT_EQ(cut.size() % 2, cut.find("\xE2\x80\xA6") == std::string::npos ? 0u : 1u)
        << "never inside a character";
  }
  const auto lines = Canvas::wrap("one two three four five six", 40, 6);
  EXPECT_GT(lines.size(), 1u);
  for (const auto& l : lines) EXPECT_LE(Canvas::text_width(l, 6), 40);
  EXPECT_GT(Canvas::text_width("\xD0\x9F", 6), 3) << "Cyrillic is in the font";
  EXPECT_GT(Canvas::text_width("bold", 6, true), Canvas::text_width("bold", 6, false));
}

TEST(ThumbnailMap, DrawsImagesWhereTheyBelong) {
  const auto points = torch::tensor({0.f, 0.f, 1.f, 1.f}).view({2, 2});
  auto images = torch::zeros({2, 3, 8, 8}, torch::kUInt8);
  images[0][0].fill_(255);  // red, lower left
  images[1][2].fill_(255);  // blue, upper right
  const Image map = thumbnail_map(points, images, {.width = 400, .height = 300});
  EXPECT_GT(count(map, {255, 0, 0}), 1000);
  EXPECT_GT(count(map, {0, 0, 255}), 1000);
  int red_x = 0, blue_x = 0;
  for (int x = 0; x < map.width; ++x)
    for (int y = 0; y < map.height; ++y) {
      if (at(map, x, y) == Pixel{255, 0, 0}) red_x = x;
      if (at(map, x, y) == Pixel{0, 0, 255}) blue_x = x;
    }
  EXPECT_LT(red_x, blue_x);
  EXPECT_THAT(error_of([&] { thumbnail_map(points, images.slice(0, 0, 1)); }),
              testing::HasSubstr("as many images"));
}

TEST(SideBySide, KeepsBoth) {
  const Image image = side_by_side({{1, 1, {1, 2, 3}}, {2, 2, {9, 9, 9, 8, 8, 8, 7, 7, 7, 6, 6, 6}}});
  EXPECT_EQ(image.width, 3);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(at(image, 0, 0), (Pixel{1, 2, 3}));
  EXPECT_EQ(at(image, 0, 1), (Pixel{255, 255, 255}));
  EXPECT_EQ(at(image, 2, 1), (Pixel{6, 6, 6}));
}

}  // namespace
}  // namespace ebclr::plot
