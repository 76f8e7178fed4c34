#include "data/other_set.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "scratch.h"

namespace ebclr::data {
namespace {

SourceOptions own_folder() {
  SourceOptions o;
  o.source = "/photos";
  o.data_root = "/sets";
  o.image_size = 64;
  o.grayscale = true;
  o.labels_csv = "labels.csv";
  o.test_fraction = 0.3;
  o.seed = 5;
  o.limit = 100;
  o.limit_test = 50;
  return o;
}

TEST(OtherSet, TheOwnSetStaysAsItIs) {
  for (const char* name : {"", "/photos"}) {
    const auto o = other_set(own_folder(), name);
    EXPECT_EQ(o.source, "/photos");
    EXPECT_EQ(o.image_size, 64);
    EXPECT_EQ(o.limit, 100);
    EXPECT_TRUE(o.grayscale);
  }
}

TEST(OtherSet, ANamedSetIsReadAtItsOwnSize) {
  // A run on a folder of 64 pixels could not be judged on cifar10: "image_size 64 does not apply".
  const auto o = other_set(own_folder(), "cifar10");
  EXPECT_EQ(o.source, "cifar10");
  EXPECT_EQ(o.image_size, 0);
  EXPECT_EQ(o.limit, 0);
  EXPECT_EQ(o.limit_test, 0);
  EXPECT_FALSE(o.grayscale);
  EXPECT_EQ(o.labels_csv, "");
  EXPECT_EQ(o.test_fraction, SourceOptions{}.test_fraction);
  EXPECT_EQ(o.data_root, "/sets");
  EXPECT_EQ(o.seed, 5u);
}

TEST(OtherSet, FoldersAndShapesAreReadAtTheOwnSize) {
  const Scratch dir;
  EXPECT_EQ(other_set(own_folder(), dir.path().string()).image_size, 64);
  EXPECT_EQ(other_set(own_folder(), "shapes").image_size, 64);
  EXPECT_EQ(other_set(own_folder(), "shapes-gray").image_size, 64);
  for (const char* name : {"shapes28", "shapes32", "shapes28-gray", "shapes32-gray"})
    EXPECT_EQ(other_set(own_folder(), name).image_size, 0) << name << " says its size";
}

TEST(OtherSet, ANamedSetIsNotTheFolderOfThatName) {
  const Scratch dir;
  std::filesystem::create_directory(dir / "cifar10");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const auto o = other_set(own_folder(), "cifar10");
  std::filesystem::current_path(before);
  EXPECT_EQ(o.image_size, 0);
}

}  // namespace
}  // namespace ebclr::data
