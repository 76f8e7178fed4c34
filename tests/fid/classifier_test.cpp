#include "fid/classifier.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <set>

#include "core/files.h"
#include "core/rng.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::fid {
namespace {
namespace fs = std::filesystem;
using testing::expect_error;

const data::TrainTest& shapes() {
  static const auto sets = data::load({.source = "shapes", .limit = 200, .limit_test = 50});
  return sets;
}

ClassifierOptions tiny() {
  return {.width = 8, .images = 64, .epochs = 1, .batch_size = 16};
}

TrainedClassifier make(const fs::path& cache, const ClassifierOptions& options = tiny(),
                       const data::TrainTest& sets = shapes()) {
  return make_classifier(sets, options, cache);
}

torch::Tensor some_images() {
  return data::to_unit_range(shapes().test.pixels.narrow(0, 0, 20));
}

TEST(Classifier, IsKeptAndFoundAgain) {
  testing::TempDir dir;
  const auto first = make(dir / "fid");
  EXPECT_FALSE(first.cached);
  ASSERT_TRUE(fs::exists(first.file));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "fid"), {}), 1);  // nothing temporary is left
  EXPECT_EQ(first.judged_on, 50);
  EXPECT_EQ(first.extractor->dimensions(), 64);
  EXPECT_EQ(first.extractor->label(), "Frechet distance on shapes classifier features (64-d)");
  EXPECT_EQ(first.extractor->label().find("FID"), std::string::npos);
  const auto again = make(dir / "fid");
  EXPECT_TRUE(again.cached);
  EXPECT_EQ(again.accuracy, first.accuracy);
  EXPECT_TRUE(torch::equal(again.unseen, first.unseen));
  EXPECT_TRUE(
      torch::equal(again.extractor->features(some_images()), first.extractor->features(some_images())));
}

TEST(Classifier, OtherSettingsAndOtherImagesAreOtherClassifiers) {
  testing::TempDir dir;
  const auto first = make(dir.path());
  auto options = tiny();
  options.seed = 1;
  const auto other_seed = make(dir.path(), options);
  EXPECT_FALSE(other_seed.cached);
  EXPECT_NE(other_seed.file, first.file);
  auto sets = shapes();
  sets.train.pixels = 255 - sets.train.pixels;
  const auto other_images = make(dir.path(), tiny(), sets);
  EXPECT_FALSE(other_images.cached);
  EXPECT_NE(other_images.file, first.file);
}

TEST(Classifier, TheSeedDecides) {
  testing::TempDir a, b;
  const auto one = make(a.path()), two = make(b.path());
  EXPECT_FALSE(two.cached);
  EXPECT_EQ(one.accuracy, two.accuracy);
  EXPECT_TRUE(torch::allclose(one.extractor->features(some_images()), two.extractor->features(some_images()),
                              1e-4, 1e-5));
}

// Grey images of 16 x 16 whose stripes run along or across, by class.
data::ImageSet stripes(int64_t n, const std::string& split, uint64_t seed) {
  data::ImageSet set;
  set.name = "stripes";
  set.split = split;
  set.pixels = torch::empty({n, 1, 16, 16}, torch::kUInt8);
  set.labels = torch::arange(n, torch::kInt64).remainder(2);
  set.class_names = {"along", "across"};
  core::Rng rng(seed);
  auto pixels = set.pixels.accessor<uint8_t, 4>();
  for (int64_t i = 0; i < n; ++i) {
    const auto phase = static_cast<int64_t>(rng.below(4));
    for (int64_t y = 0; y < 16; ++y)
      for (int64_t x = 0; x < 16; ++x)
        pixels[i][0][y][x] =
            static_cast<uint8_t>((((i % 2 ? x : y) + phase) % 4 < 2 ? 150 : 30) + rng.below(60));
  }
  return set;
}

TEST(Classifier, LearnsAndLeavesImagesUnseen) {
  testing::TempDir dir;
  const data::TrainTest sets{stripes(300, "train", 1), stripes(60, "test", 2)};
  const auto c = make(dir.path(), {.width = 8, .images = 100, .epochs = 6, .batch_size = 10}, sets);
  EXPECT_GT(c.accuracy, 0.85);
  EXPECT_EQ(c.unseen.numel(), 200);
  EXPECT_NE(c.extractor->description().find(fmt::format("{:.1f} %", 100 * c.accuracy)), std::string::npos);
  EXPECT_TRUE(c.notes.empty());
}

TEST(Classifier, SaysWhenItKnowsLittle) {
  testing::TempDir dir;
  auto options = tiny();
  options.lr = 1e-12;
  const auto c = make(dir.path(), options);
  ASSERT_LT(c.accuracy, 0.2);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("say little"), std::string::npos) << c.notes[0];
}

TEST(Classifier, UsesHalfAtMost) {
  testing::TempDir dir;
  auto options = tiny();
  options.images = 100000;
  EXPECT_EQ(make(dir.path(), options).unseen.numel(), 100);
}

TEST(Classifier, ADamagedFileIsReplaced) {
  testing::TempDir dir;
  const auto first = make(dir.path());
  const auto want = first.extractor->features(some_images());
  const auto good = core::read_text(first.file, "test");
  const auto write = [&](const std::string& text) { std::ofstream(first.file, std::ios::binary) << text; };
  std::string flipped = good;
  flipped[flipped.size() - 300] =
      static_cast<char>(flipped[flipped.size() - 300] ^ 0x10);  // inside the weights
  std::string renamed = good;
  renamed.replace(renamed.find("\"accuracy\""), 10, "\"accurasy\"");
  for (const auto& bad :
       {std::string(), std::string("nonsense"), good.substr(0, good.size() / 2), flipped, renamed}) {
    write(bad);
    const auto next = make(dir.path());
    EXPECT_FALSE(next.cached);
    ASSERT_GE(next.notes.size(), 1u);
    EXPECT_NE(next.notes[0].find("trained anew"), std::string::npos) << next.notes[0];
    EXPECT_TRUE(torch::allclose(next.extractor->features(some_images()), want, 1e-4, 1e-5));
    EXPECT_TRUE(make(dir.path()).cached);
  }
}

TEST(Classifier, AFolderThatCannotBeWrittenIsNoObstacle) {
  testing::TempDir dir;
  std::ofstream(dir / "file") << "in the way";
  const auto c = make(dir / "file" / "fid");
  EXPECT_TRUE(c.file.empty());
  ASSERT_GE(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("could not be kept"), std::string::npos);
  EXPECT_EQ(c.extractor->features(some_images()).size(0), 20);
}

TEST(Classifier, NeedsLabelsAndClasses) {
  testing::TempDir dir;
  auto sets = shapes();
  sets.train.labels = torch::full_like(sets.train.labels, data::kNoLabel);
  expect_error(
      core::ExitCode::kUsage, [&] { make(dir.path(), tiny(), sets); }, "without a label", "--inception",
      "--data");
  sets = shapes();
  sets.train.class_names = {"one"};
  expect_error(
      core::ExitCode::kUsage, [&] { make(dir.path(), tiny(), sets); }, "only one class", "--inception");
  sets = {};
  expect_error(
      core::ExitCode::kUsage, [&] { make(dir.path(), tiny(), sets); }, "no train images");
  expect_error(
      core::ExitCode::kUsage,
      [&] {
        make(dir.path()).extractor->features(torch::zeros({2, 1, 28, 28}));
      },
      "1 x 28 x 28", "3 x 32 x 32");
}

TEST(Classifier, ProgressMayEndTheTraining) {
  testing::TempDir dir;
  int calls = 0;
  const eval::Progress stop = [&](const std::string&, double share) {
    EXPECT_GE(share, 0);
    EXPECT_LT(share, 1);
    if (++calls == 3) throw core::Error(core::ExitCode::kInterrupted, "test", "stopped");
  };
  expect_error(
      core::ExitCode::kInterrupted, [&] { make_classifier(shapes(), tiny(), dir / "fid", {}, stop); },
      "stopped");
  EXPECT_EQ(calls, 3);
  EXPECT_FALSE(fs::exists(dir / "fid"));
}

}  // namespace
}  // namespace ebclr::fid
