#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace ebclr::core {
namespace {

TEST(Philox, MatchesPublishedVectors) {
  // Known-answer vectors of the Random123 distribution for philox4x32-10.
  EXPECT_EQ(philox4x32(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, CopyContinuesAtTheSamePlace) {
  Rng a(7, Stream::kChains, {1, 2});
  for (int i = 0; i < 5; ++i) a.next_u32();
  Rng b(a.key(), a.counter());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(a.next_u32(), b.next_u32());
}

TEST(Rng, StreamsDiffer) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1})
    for (auto s : {Stream::kInit, Stream::kViews})
      for (uint64_t part : {0, 1, 2}) keys.insert(Rng(seed, s, {part}).key());
  EXPECT_EQ(keys.size(), 12u);
}

TEST(Rng, BelowIsUniform) {
  Rng rng(3, Stream::kEval);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[rng.below(7)];
  for (int c : counts) EXPECT_NEAR(c, 10000, 500);
}

TEST(Rng, FillNormalDoesNotDependOnThePartition) {
  std::vector<float> whole(1003), parts(1003);
  fill_normal(99, 5, whole);
  fill_normal(99, 5, std::span(parts).first(1));
  fill_normal(99, 6, std::span(parts).subspan(1, 600));
  fill_normal(99, 606, std::span(parts).subspan(601));
  EXPECT_EQ(whole, parts);
}

TEST(Rng, FillNormalHasTheMomentsOfANormal) {
  std::vector<float> x(400000);
  fill_normal(1, 0, x);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  for (double v : x) m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
  const double n = static_cast<double>(x.size());
  EXPECT_NEAR(m1 / n, 0, 0.008);
  EXPECT_NEAR(m2 / n, 1, 0.012);
  EXPECT_NEAR(m3 / n, 0, 0.03);
  EXPECT_NEAR(m4 / n, 3, 0.08);
  double within = 0;
  for (float v : x) within += std::abs(v) < 1.959964f;
  EXPECT_NEAR(within / n, 0.95, 0.002);
}

}  // namespace
}  // namespace ebclr::core
