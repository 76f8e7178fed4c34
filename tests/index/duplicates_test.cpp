#include "index/duplicates.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "expect_error.h"
#include "made.h"
#include "temp_dir.h"

namespace ebclr::index {
namespace {

/// A smooth random scene, seen through a window: scale and shift say which part.
torch::Tensor scene(uint64_t seed, double scale = 1, double x = 0, double y = 0, double noise = 0) {
  core::Rng rng(seed);
  std::vector<std::array<double, 5>> waves;
  for (int i = 0; i < 12; ++i)
    waves.push_back({rng.uniform(-9, 9), rng.uniform(-9, 9), rng.uniform(0, 6.28f), rng.uniform(5, 25), 0});
  auto out = torch::empty({kSmallSide, kSmallSide}, torch::kUInt8);
  core::Rng grain(seed + 77);
  for (int64_t j = 0; j < kSmallSide; ++j)
    for (int64_t i = 0; i < kSmallSide; ++i) {
      const double u = x + scale * (i + 0.5) / kSmallSide, v = y + scale * (j + 0.5) / kSmallSide;
      double s = 128 + noise * grain.normal();
      for (const auto& w : waves) s += w[3] * std::cos(w[0] * u + w[1] * v + w[2]);
      out[j][i] = static_cast<uint8_t>(std::clamp(s, 0.0, 255.0));
    }
  return out;
}

double agree(const torch::Tensor& a, const torch::Tensor& b) {
  return agreement(a.data_ptr<uint8_t>(), b.data_ptr<uint8_t>());
}

TEST(Duplicates, CopiesAgreeAndOthersDoNot) {
  for (uint64_t s = 0; s < 20; ++s) {
    SCOPED_TRACE(s);
    const auto a = scene(s);
    EXPECT_GT(agree(a, a), 0.999);
    EXPECT_GT(agree(a, scene(s, 1, 0, 0, 4)), 0.97) << "recompressed";
    EXPECT_GT(agree(a, scene(s, 0.9, 0.05, 0.05, 2)), 0.95) << "cropped";
    EXPECT_GT(agree(scene(s, 0.85, 0.1, 0.02, 2), a), 0.95) << "the other way round";
    EXPECT_LT(agree(a, scene(s + 100)), 0.85) << "another scene";
  }
  const auto grey = torch::full({kSmallSide, kSmallSide}, 90, torch::kUInt8);
  EXPECT_GT(agree(grey, grey + 1), 0.99);
  EXPECT_LT(agree(grey, scene(1)), 0);
}

TEST(Duplicates, TheSearchIsGivenUp) {
  testing::TempDir dir;
  auto c = made(60, 16);
  write_index(dir / "a.idx", c);
  const auto index = Index::open(dir / "a.idx");
  // Asked first while neighbours are looked for, then while pairs are compared.
  for (const int patience : {1, 2}) {
    std::atomic<int> asked{0};
    testing::expect_error(
        core::ExitCode::kInterrupted,
        [&] { find_duplicates(index, {.similarity = -1, .stop = [&] { return ++asked >= patience; }}); },
        "interrupted");
    EXPECT_GE(asked, patience);
  }
}

TEST(Duplicates, GroupsHoldCopiesAndNothingElse) {
  testing::TempDir dir;
  auto c = made(60, 16);
  for (int64_t i = 0; i < 60; ++i) c.small[i] = scene(static_cast<uint64_t>(i));
  // 3, 30 and 40: a picture, its crop, its recompression. 5 and 6: the same bytes. 10 and 11 look alike to
  // the encoder only; 20 and 21 are the same picture, which the encoder does not see.
  c.small[30] = scene(3, 0.92, 0.03, 0.05, 2);
  c.small[40] = scene(3, 1, 0, 0, 3);
  for (const int64_t i : {30, 40}) c.features[i] = c.features[3];
  c.features[11] = c.features[10];
  c.small[21] = c.small[20];
  c.features[21] = -c.features[20];
  c.records[6] = c.records[5];
  c.features[6] = c.features[5];
  c.small[6] = c.small[5];
  c.records[30].bytes = 9000;
  write_index(dir / "a.idx", c);
  const auto groups = find_duplicates(Index::open(dir / "a.idx"), {.similarity = 0.9, .agreement = 0.9});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].rows, (std::vector<int64_t>{30, 40, 3})) << "the largest file first";
  EXPECT_EQ(groups[0].exact, (std::vector<bool>{false, false, false}));
  EXPECT_LT(groups[0].agreement, 1);
  EXPECT_EQ(groups[1].rows, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(groups[1].exact, (std::vector<bool>{true, true}));
}

TEST(Duplicates, TheSameBytesAreToldAmongNearCopies) {
  testing::TempDir dir;
  auto c = made(60, 16);
  for (int64_t i = 0; i < 60; ++i) c.small[i] = scene(static_cast<uint64_t>(i));
  // 40 and 41 are the same bytes, and nearly the picture of 3 and 30.
  c.small[30] = scene(3, 1, 0, 0, 2);
  c.small[40] = scene(3, 1, 0, 0, 3);
  c.small[41] = c.small[40];
  for (const int64_t i : {30, 40, 41}) c.features[i] = c.features[3];
  c.records[41] = c.records[40];
  c.records[30].bytes = 9000;
  write_index(dir / "a.idx", c);
  const auto groups = find_duplicates(Index::open(dir / "a.idx"), {.similarity = 0.9, .agreement = 0.9});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].rows, (std::vector<int64_t>{30, 40, 41, 3}));
  EXPECT_EQ(groups[0].exact, (std::vector<bool>{false, false, true, false}))
      << "without 41 no bytes are lost; without 40 and 41 they were";
}

TEST(Duplicates, ALinkIsNoCopyOfWhatItLeadsTo) {
  namespace fs = std::filesystem;
  testing::TempDir dir, outside;
  fs::create_directories(dir / "photos/real");
  for (const auto& file : {dir / "photos/real/photo.png", dir / "photos/copy.png", outside / "x.png"})
    std::ofstream(file) << "the same bytes";
  fs::create_symlink("real/photo.png", dir / "photos/a_link.png");
  fs::create_symlink(outside / "x.png", dir / "photos/b_outside.png");
  // As an index has them that was made before links were told apart, or before they were links.
  auto c = made(4, 16);
  c.info.folder = (dir / "photos").string();
  c.paths = {"a_link.png", "b_outside.png", "copy.png", "real/photo.png"};
  for (size_t i = 1; i < 4; ++i) c.records[i] = c.records[0];
  write_index(dir / "a.idx", c);
  const auto find = [&] { return find_duplicates(Index::open(dir / "a.idx"), {}); };
  auto groups = find();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].rows, (std::vector<int64_t>{3, 2, 1})) << "real files first";
  EXPECT_EQ(groups[0].exact, (std::vector<bool>{true, true, true}));
  for (const char* name : {"copy.png", "b_outside.png"}) fs::remove(dir / "photos" / name);
  fs::create_hard_link(dir / "photos/real/photo.png", dir / "photos/copy.png");
  fs::create_symlink("copy.png", dir / "photos/b_outside.png");
  EXPECT_TRUE(find().empty()) << "four names of one file";
}

TEST(Duplicates, PerceptualHashForgivesNoiseOnly) {
  const auto hash = [](const torch::Tensor& t) { return perceptual_hash(t.data_ptr<uint8_t>()); };
  EXPECT_LE(std::popcount(hash(scene(1)) ^ hash(scene(1, 1, 0, 0, 3))), 10) << "the usual bound";
  EXPECT_GT(std::popcount(hash(scene(1)) ^ hash(scene(2))), 14);
}

}  // namespace
}  // namespace ebclr::index
