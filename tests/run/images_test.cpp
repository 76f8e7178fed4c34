#include "run/images.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/files.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::run {
namespace {
namespace fs = std::filesystem;

// A folder of 12 grey pictures that differ.
fs::path pictures(const testing::TempDir& dir, const std::string& name) {
  fs::create_directories(dir / name);
  for (int i = 0; i < 12; ++i)
    std::ofstream(dir / name / fmt::format("{:02}.pgm", i), std::ios::binary)
        << "P5\n16 16\n255\n"
        << std::string(256, static_cast<char>('a' + i));
  return dir / name;
}

class Images : public ::testing::Test {
 protected:
  testing::TempDir dir;
  fs::path folder = pictures(dir, "photos");
  RunFolder run{dir / "run"};
  data::SourceOptions source{.source = folder.string(), .image_size = 16, .test_fraction = 0.25};

  void SetUp() override {
    fs::create_directories(run.root);
    core::write_atomically(run.config(), to_yaml(resolve({})), "test");
    write_image_list(run, load_images(run, source).list);
  }
};

TEST_F(Images, KeepTheirSplitWhateverTheSeed) {
  const auto first = load_images(run, source);
  auto later = source;
  later.seed = 5;
  later.test_fraction = 0.5;
  EXPECT_EQ(load_images(run, later).test.files, first.test.files);
  EXPECT_NE(data::load(later).test.files, first.test.files) << "or this test would test nothing";
}

TEST_F(Images, ChangesAreNoticedAndMovingIsNoChange) {
  const auto opened = Run::open(run.root);
  check_same_images(run, load_images(run, source).list, source.source);
  const auto moved = pictures(dir, "moved");
  EXPECT_TRUE(is_moved(opened, moved.string()));
  auto there = source;
  there.source = moved.string();
  check_same_images(run, load_images(run, there).list, there.source);
  fs::remove(moved / "03.pgm");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { check_same_images(run, load_images(run, there).list, there.source); },
      "1 file is missing (03.pgm)", "where they are now");
  EXPECT_THAT(load_images(run, there).train.notes,
              ::testing::Contains(::testing::HasSubstr("since training 1 file is missing")));
  fs::create_directories(dir / "others");
  std::ofstream(dir / "others" / "x.pgm") << "P5\n16 16\n255\n" << std::string(256, 'x');
  EXPECT_FALSE(is_moved(opened, (dir / "others").string()));
}

TEST_F(Images, WhatALimitLeavesOutHasNotChanged) {
  const auto whole = load_images(run, source);
  ASSERT_EQ(whole.train.size(), 9);
  const auto limited = [&](int64_t train, int64_t test) {
    auto fewer = source;
    fewer.limit = train;
    fewer.limit_test = test;
    return load_images(run, fewer);
  };
  const auto some = limited(3, 2);
  EXPECT_EQ(some.train.size(), 3);
  EXPECT_EQ(some.test.size(), 2);
  EXPECT_TRUE(some.train.notes.empty()) << some.train.notes.front();
  EXPECT_EQ(limited(1, 0).test.size(), 3) << "0: all of them";
  EXPECT_EQ(limited(0, 1).train.size(), 9);
  EXPECT_EQ(limited(9, 3).train.files, whole.train.files) << "the run's own limits take nothing away";
  // A run does not go on with a part of its images.
  testing::expect_error(
      core::ExitCode::kUsage, [&] { check_same_images(run, some.list, source.source); },
      "7 files are left out");
  // What can be seen without reading is still seen.
  for (const auto& i : some.list.images)
    if (i.split == "rest") {
      std::ofstream(folder / i.path, std::ios::app) << "more";
      break;
    }
  EXPECT_THAT(limited(3, 2).train.notes,
              ::testing::Contains(::testing::HasSubstr("since training 1 file has changed")));
}

TEST_F(Images, OfAnotherFolderAreRefused) {
  const auto opened = Run::open(run.root);
  check_holds_images(opened, folder.string());
  check_holds_images(opened, pictures(dir, "moved").string());
  check_holds_images(opened, (dir / "gone").string());  // what is not there has a message of its own
  fs::create_directories(dir / "others");
  std::ofstream(dir / "others" / "x.pgm") << "P5\n16 16\n255\n" << std::string(256, 'x');
  for (const std::string& wrong : {(dir / "others").string(), std::string("shapes")})
    testing::expect_error(
        core::ExitCode::kUsage, [&] { check_holds_images(opened, wrong); }, wrong,
        "does not hold the images of", "name the folder");
}

TEST_F(Images, AreUsedWithoutLabelsThatAreGoneByWhoNeedsNone) {
  std::string csv;
  for (int i = 0; i < 12; ++i) csv += fmt::format("{:02}.pgm,{}\n", i, i % 2 ? "odd" : "even");
  std::ofstream(dir / "labels.csv") << csv;
  auto config = resolve({});
  config.data = source;
  config.data.labels_csv = (dir / "labels.csv").string();
  const auto whole = load_pixels(run, config.data);
  EXPECT_TRUE(whole.train.labelled());
  fs::rename(dir / "labels.csv", dir / "moved.csv");
  // A run that learnt from labels leaves out images without.
  for (const bool labelled : {false, true}) {
    config.data.labelled = labelled;
    for (const auto& sets : {load_pixels(run, config.data), load_to_resume(run, config)}) {
      EXPECT_EQ(sets.train.files, whole.train.files);
      EXPECT_EQ(sets.test.files, whole.test.files);
      EXPECT_TRUE((sets.train.labels == data::kNoLabel).all().item<bool>());
      EXPECT_THAT(sets.train.notes, ::testing::ElementsAre(::testing::HasSubstr("labels are not there")));
      check_same_images(run, sets.list, source.source);
    }
  }
  const auto gone = [&](const auto& load) {
    testing::expect_error(core::ExitCode::kUsage, load, "labels.csv", "no such file");
  };
  gone([&] { load_images(run, config.data); });
  config.method.name = "supervised";
  gone([&] { load_to_resume(run, config); });
  config.data.validation = 3;  // drawn by labels
  gone([&] { load_pixels(run, config.data); });
  config.data.validation = 0;
  fs::remove(run.images());  // without the list nobody knows the split
  gone([&] { load_pixels(run, config.data); });
}

TEST_F(Images, WithoutLabelsDoNotTakeThoseOfSubFolders) {
  for (int i = 0; i < 12; ++i) {
    const auto name = fmt::format("{:02}.pgm", i);
    fs::create_directories(folder / (i % 3 ? "a" : "b"));
    fs::rename(folder / name, folder / (i % 3 ? "a" : "b") / name);
  }
  write_image_list(run, data::load(source).list);
  source.labels_csv = (dir / "gone.csv").string();
  EXPECT_TRUE(load_pixels(run, source).train.class_names.empty());
}

TEST_F(Images, PathsBecomeAbsolute) {
  const auto here = fs::current_path();
  fs::current_path(dir.path());
  auto relative = source;
  relative.source = "photos";
  const auto a = absolute(relative);
  fs::current_path(here);
  EXPECT_EQ(a.source, fs::weakly_canonical(folder).string());
  EXPECT_EQ(absolute({.source = "cifar10"}).source, "cifar10");
}

TEST(ImagesOfNamedSets, HaveNoList) {
  testing::TempDir dir;
  const RunFolder run{dir / "run"};
  write_image_list(run, data::load({.source = "shapes", .limit = 10, .limit_test = 5}).list);
  EXPECT_FALSE(image_list(run).has_value());
}

}  // namespace
}  // namespace ebclr::run
