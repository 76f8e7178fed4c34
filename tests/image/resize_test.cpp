#include "image/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/make_images.h"

namespace ebclr::image {
namespace {

using ::testing::ElementsAre;

TEST(Resize, ShrinkingIsTheMeanOfTheArea) {
  Pixels p(4, 2, 1);
  p.data = {0, 100, 10, 30, 200, 100, 50, 70};
  EXPECT_THAT(resize(p, 2, 1).data, ElementsAre(100, 40));
  Pixels three(3, 1, 1);
  three.data = {0, 90, 180};
  EXPECT_THAT(resize(three, 2, 1).data, ElementsAre(30, 150)) << "the middle one is shared";
  EXPECT_EQ(resize(p, 4, 2).data, p.data);
}

TEST(Resize, GrowingInterpolates) {
  Pixels p(2, 1, 1);
  p.data = {0, 100};
  EXPECT_THAT(resize(p, 4, 1).data, ElementsAre(0, 25, 75, 100));
  Pixels one(1, 1, 3);
  one.data = {1, 2, 3};
  EXPECT_EQ(resize(one, 8, 8).data.size(), 192u);
  EXPECT_EQ(resize(one, 8, 8).data[190], 2);
}

TEST(Square, TakesTheCentreAsPlanes) {
  const auto p = testing::two_colours(40, 20);
  std::vector<uint8_t> out(3 * 20 * 20), grey(20 * 20);
  square_planes(p, 20, false, out.data());
  EXPECT_EQ(out[9], 255);  // red plane: ten columns of each colour
  EXPECT_EQ(out[10], 0);
  EXPECT_EQ(out[400 + 9], 0);  // green plane
  EXPECT_EQ(out[400 + 10], 255);
  square_planes(p, 20, true, grey.data());
  EXPECT_EQ(grey[0], 76);  // luminance of red
  EXPECT_EQ(grey[19], 150);
  std::vector<uint8_t> sliver(3 * 32 * 32);
  square_planes(testing::plain(3, 500, 7, 8, 9), 32, false, sliver.data());
  EXPECT_EQ(sliver[0], 7);
  EXPECT_EQ(sliver.back(), 9);
}

}  // namespace
}  // namespace ebclr::image
