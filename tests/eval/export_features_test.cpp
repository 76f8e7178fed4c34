#include "eval/export_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/npy.h"
#include "helpers.h"
#include "temp_dir.h"

namespace ebclr::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

data::ImageSet noise_images(int64_t n) {
  data::ImageSet set;
  set.name = "toy";
  set.split = "train";
  set.labels = torch::arange(n, torch::kInt64) % 2;
  set.pixels = (127 + 40 * normal({n, 3, 16, 16}, 5)).clamp(0, 255).to(torch::kUInt8);
  set.class_names = {"cat, small", "dog"};
  return set;
}

data::ImageSet unlabelled(data::ImageSet set) {
  set.labels = torch::full_like(set.labels, data::kNoLabel);
  set.class_names.clear();
  return set;
}

run::Model small_model() {
  run::Model model;
  model.encoder = std::make_shared<nn::Encoder>(nn::EncoderOptions{.width = 4, .channels = 3}, 1);
  return model;
}

TEST(ExportFeatures, SaysWhatLabelsMean) {
  testing::TempDir dir;
  const auto out = export_features(small_model(), noise_images(5), {.out = dir / "a.npy"});
  EXPECT_EQ(out.files.size(), 4u);
  EXPECT_EQ(core::read_text(dir / "a.classes.txt", "test"), "cat, small\ndog\n");
  EXPECT_TRUE(core::read_npy(dir / "a.labels.npy").equal(noise_images(5).labels));
}

TEST(ExportFeatures, LeavesNothingOfOtherImagesBesideTheArray) {
  testing::TempDir dir;
  const auto model = small_model();
  export_features(model, noise_images(6), {.out = dir / "a.npy", .csv = true});
  export_features(model, noise_images(6), {.out = dir / "b.npy", .csv = true});
  export_features(model, unlabelled(noise_images(4)), {.out = dir / "a.npy"});
  EXPECT_EQ(core::read_npy(dir / "a.npy").size(0), 4);
  for (const char* gone : {"a.labels.npy", "a.classes.txt", "a.csv"})
    EXPECT_FALSE(fs::exists(dir / gone)) << gone;
  for (const char* kept : {"a.files.txt", "b.labels.npy", "b.classes.txt", "b.csv"})
    EXPECT_TRUE(fs::exists(dir / kept)) << kept;
}

TEST(ExportFeatures, TakesAwayNothingOfTheUsers) {
  testing::TempDir dir;
  const auto model = small_model();
  // A table of the same name, as one has it for --labels.
  core::write_atomically(dir / "a.csv", "path,label\nx.png,cat\n", "test");
  core::write_atomically(dir / "a.classes.txt", "mine\n", "test");
  export_features(model, unlabelled(noise_images(4)), {.out = dir / "a.npy"});
  EXPECT_TRUE(fs::exists(dir / "a.csv"));
  EXPECT_TRUE(fs::exists(dir / "a.classes.txt"));
  // Labels that were made elsewhere are neither removed nor left beside other features.
  core::write_npy(dir / "b.labels.npy", torch::zeros({3}, torch::kInt64));
  EXPECT_THAT(error_of([&] { export_features(model, unlabelled(noise_images(4)), {.out = dir / "b.npy"}); }),
              HasSubstr("b.labels.npy: would lie beside features of images without labels"));
  EXPECT_TRUE(fs::exists(dir / "b.labels.npy"));
  EXPECT_FALSE(fs::exists(dir / "b.npy"));
}

TEST(PickSplit, ASplitThatIsNotThereIsAnError) {
  data::TrainTest sets;
  sets.train = noise_images(3);
  EXPECT_EQ(pick_split(sets, "all").size(), 3);
  EXPECT_THAT(error_of([&] { pick_split(sets, "test"); }),
              HasSubstr("'toy' has no test images; try another --split"));
}

}  // namespace
}  // namespace ebclr::eval
