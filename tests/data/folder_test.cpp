#include "data/folder.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <filesystem>

#include "data/catalog.h"
#include "data/scratch.h"
#include "image/make_images.h"

namespace ebclr::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ebclr::testing::encode;
using ebclr::testing::plain;
using ebclr::testing::two_colours;

std::vector<int> rgb(const torch::Tensor& image, int64_t y, int64_t x) {
  std::vector<int> v;
  for (int64_t c = 0; c < image.size(0); ++c) v.push_back(image[c][y][x].item<int>());
  return v;
}

TEST(Folder, SubFoldersAreClasses) {
  const Scratch dir;
  for (const char* name : {"dog/1.png", "cat/b.PNG", "cat/a.png", "bird/x.bmp", ".hidden/z.png"})
    dir.write(name, encode(two_colours(), ".png"));
  dir.write("notes.txt", "not a picture");
  const auto set = read_folder(dir.path(), {.image_size = 16});
  EXPECT_THAT(set.files, ElementsAre("bird/x.bmp", "cat/a.png", "cat/b.PNG", "dog/1.png"));
  EXPECT_THAT(set.class_names, ElementsAre("bird", "cat", "dog"));
  EXPECT_TRUE(torch::equal(set.labels, torch::tensor({0, 1, 1, 2}, torch::kInt64)));
  EXPECT_EQ(set.pixels.sizes(), (std::vector<int64_t>{4, 3, 16, 16}));
  EXPECT_TRUE(set.labelled());
  EXPECT_TRUE(torch::equal(read_folder(dir.path(), {.image_size = 16, .threads = 3}).pixels, set.pixels));
}

TEST(Folder, LabelledLeavesOutTheOthersAndSplitsByClass) {
  const Scratch dir;
  std::string csv;
  for (int i = 0; i < 60; ++i) {
    dir.write(fmt::format("{:02}.png", i), encode(two_colours(), ".png"));
    if (i < 40) csv += fmt::format("{:02}.png,{}\n", i, i % 4 == 0 ? "rare" : "common");
  }
  dir.write("labels.csv", csv);
  SourceOptions o{.source = dir.path().string(),
                  .image_size = 16,
                  .labels_csv = (dir.path() / "labels.csv").string(),
                  .labelled = true,
                  .test_fraction = 0.2};
  const auto d = load(o);
  EXPECT_EQ(d.train.size(), 32);
  EXPECT_EQ(d.test.size(), 8);
  EXPECT_TRUE(d.train.labelled() && d.test.labelled());
  EXPECT_EQ(d.test.labels.eq(1).sum().item<int64_t>(), 2) << "a fifth of each class";
  // The list of the run keeps the split, whatever the fraction says later.
  o.test_fraction = 0.5;
  const auto again = load(o, {.list = &d.list});
  EXPECT_EQ(again.train.files, d.train.files);
  EXPECT_EQ(again.test.files, d.test.files);
  o.labels_csv.clear();
  EXPECT_THAT(error_of([&] { load(o); }), HasSubstr("no image has a label"));
}

TEST(Folder, FlatAndDeepFoldersHaveNoLabels) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (const char* name : {"flat/a.png", "flat/b.png", "deep/2024/01/a.png", "deep/2024/02/b.png",
                           "deep/2025/01/c.png", "one/only/a.png"})
    dir.write(name, png);
  for (const char* name : {"flat", "deep", "one"}) {
    const auto set = read_folder(dir / name, {});
    EXPECT_EQ(set.classes(), 0) << name;
    EXPECT_FALSE(set.labelled());
    EXPECT_TRUE((set.labels == kNoLabel).all().item<bool>());
  }
}

TEST(Folder, LinksThatGoInCirclesAreSafe) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  dir.write("a/1.png", png);
  dir.write("b/2.png", png);
  std::filesystem::create_directory_symlink(dir.path(), dir / "a/up");
  std::filesystem::create_directory_symlink(dir / "b", dir / "b/self");
  std::filesystem::create_symlink(dir / "nowhere.png", dir / "b/broken.png");
  const auto set = read_folder(dir.path(), {});
  EXPECT_THAT(set.files, ElementsAre("a/1.png", "b/2.png"));
  EXPECT_EQ(set.classes(), 2);
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0], HasSubstr("b/broken.png"));
}

TEST(Folder, UnreadableFilesAreNamedAndFatalOnlyIfMost) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (int i = 0; i < 5; ++i)
    dir.write(fmt::format("g{}.png", i), i == 2 ? encode(plain(20, 20, 9, 9, 9), ".png") : png);
  dir.write("a.png", "no image");
  dir.write("g1x.jpg", encode(two_colours(), ".jpg").substr(0, 300));
  const auto set = read_folder(dir.path(), {.image_size = 20});
  EXPECT_EQ(set.size(), 5);
  EXPECT_EQ(set.files[2], "g2.png");
  EXPECT_THAT(rgb(set.pixels[2], 0, 0), ElementsAre(9, 9, 9));  // still the pixels of that file
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0],
              AllOf(HasSubstr("2 of 7 files"), HasSubstr("a.png, g1x.jpg"), HasSubstr("unknown magic")));
  for (int i = 0; i < 9; ++i) dir.write(fmt::format("bad{}.png", i), "");
  EXPECT_THAT(error_of([&] { read_folder(dir.path(), {}); }),
              AllOf(HasSubstr("11 of 16 images cannot be read"), HasSubstr("and 6 more")));
  EXPECT_THAT(error_of([&] { read_folder(dir / "none", {}); }), HasSubstr("not a folder"));
  std::filesystem::create_directory(dir / "empty");
  EXPECT_THAT(error_of([&] { read_folder(dir / "empty", {}); }), HasSubstr("no images"));
  EXPECT_THAT(error_of([&] { read_folder(dir.path(), {.image_size = 4}); }), HasSubstr("image_size is 4"));
}

TEST(Folder, StrangeFilesAreCountedAndNamed) {
  const Scratch dir;
  for (int i = 0; i < 6; ++i) dir.write(fmt::format("good{}.png", i), encode(two_colours(), ".png"));
  dir.write("no_ending", encode(two_colours(), ".jpg"));
  dir.write("wrong_ending.txt", encode(two_colours(), ".webp"));
  dir.write("really.txt", "text");
  dir.write("empty.jpg", "");
  const std::string odd = "a \"b\", <i>\n\xff.png";
  dir.write(odd, encode(two_colours(), ".png"));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(dir / "pipe", dir / "pipe.jpg");
  std::filesystem::create_symlink("/dev/zero", dir / "zero.png");
  const auto both = load({.source = dir.path().string(), .test_fraction = 0});
  EXPECT_EQ(both.train.size(), 9);
  EXPECT_THAT(both.train.files, ::testing::Contains(odd));
  EXPECT_THAT(both.train.files, ::testing::Contains("no_ending"));
  EXPECT_THAT(both.train.files, ::testing::Contains("wrong_ending.txt"));
  ASSERT_EQ(both.problems.size(), 3u);
  EXPECT_EQ(both.problems[0].path, "empty.jpg");
  EXPECT_THAT(both.problems[0].reason, HasSubstr("empty"));
  EXPECT_EQ(both.problems[1].path, "pipe.jpg");
  EXPECT_EQ(both.problems[1].reason, "not a regular file");
  EXPECT_EQ(both.problems[2].path, "zero.png");
  EXPECT_THAT(both.train.notes.at(0), HasSubstr("3 of 12 files could not be read"));
}

TEST(Folder, TinyImageNetsLayoutHasLabels) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (const char* name : {"train/n01/images/a.JPEG", "train/n01/images/b.JPEG", "train/n02/images/c.JPEG",
                           "val/images/v1.JPEG", "val/images/v2.JPEG"})
    dir.write(name, png);
  const auto d = load({.source = dir.path().string()});
  EXPECT_THAT(d.train.class_names, ElementsAre("n01", "n02"));
  EXPECT_TRUE(d.train.labelled());
  EXPECT_EQ(d.test.size(), 2);
  EXPECT_FALSE(d.test.labelled());
  EXPECT_THAT(d.train.notes.at(0), HasSubstr("val has no class folders"));
}

TEST(Folder, CsvLabelsAPart) {
  const Scratch dir;
  for (const char* name : {"i/a.png", "i/b.png", "i/c,d.png", "i/e.png", "i/sub/f.png"})
    dir.write(name, encode(two_colours(), ".png"));
  const auto labelled = [&](const std::string& csv) {
    return read_folder(dir / "i", {.labels_csv = dir.write("labels.csv", csv)});
  };
  const auto set =
      labelled("\xEF\xBB\xBFpath,label\r\na.png,10\n./sub/f.png,9\n\"c,d.png\",\"10\"\ngone.png,9\n\n");
  EXPECT_THAT(set.class_names, ElementsAre("9", "10"));  // as numbers
  EXPECT_TRUE(torch::equal(set.labels, torch::tensor({1, -1, 1, -1, 0}, torch::kInt64)));
  EXPECT_FALSE(set.labelled());
  EXPECT_THAT(set.notes.at(0), HasSubstr("gone.png"));
  EXPECT_THAT(set.notes.at(1), HasSubstr("3 of 5 images have a label"));
  const auto message = [&](const std::string& csv) { return error_of([&] { labelled(csv); }); };
  EXPECT_THAT(message("a.png,x\nb.png\n"), HasSubstr("labels.csv: line 2: 1 field(s); expected path,label"));
  EXPECT_THAT(message("a.png,x\nb.png,\n"), HasSubstr("line 2: the label is empty"));
  EXPECT_THAT(message("a.png,x\na.png,y\n"), HasSubstr("line 2: a.png is labelled y, and x further up"));
  EXPECT_THAT(message("a.png,\"x\n"), HasSubstr("line 1: a quote is not closed"));
  EXPECT_THAT(message("z.png,x\n"), HasSubstr("none of its 1 lines names an image"));
  EXPECT_THAT(message(std::string("a.png,\0x\n", 9)), HasSubstr("binary data"));
  EXPECT_THAT(error_of([&] { read_folder(dir / "i", {.labels_csv = dir / "none.csv"}); }),
              HasSubstr("no such file"));
}

TEST(Folder, BecomesTrainAndTest) {
  const Scratch dir;
  for (int i = 0; i < 20; ++i)
    dir.write(std::string(i % 2 ? "x" : "y") + "/" + std::to_string(i) + ".png",
              encode(two_colours(), ".png"));
  const auto d = load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2, .seed = 1});
  EXPECT_EQ(d.train.size(), 16);
  EXPECT_EQ(d.test.size(), 4);
  EXPECT_EQ(d.test.labels.sum().item<int64_t>(), 2);  // two of each class
  EXPECT_EQ(d.train.split, "train");
  EXPECT_EQ(d.test.split, "test");
  EXPECT_EQ(load({.source = dir.path().string(), .test_fraction = 0}).test.size(), 0);
  EXPECT_EQ(load({.source = dir.path().string(), .limit = 6}).train.labels.sum().item<int64_t>(), 3);
}

TEST(Folder, TrainBesideTestAreTheSplits) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (const char* name : {"train/x/1.png", "train/y/2.png", "train/y/3.png", "val/x/4.png", "val/y/5.png"})
    dir.write(name, png);
  const auto d = load({.source = dir.path().string()});
  EXPECT_EQ(d.train.size(), 3);
  EXPECT_EQ(d.test.size(), 2);
  EXPECT_THAT(d.train.class_names, ElementsAre("x", "y"));
  dir.write("val/z/6.png", png);
  EXPECT_THAT(error_of([&] { load({.source = dir.path().string()}); }), HasSubstr("different class folders"));
}

}  // namespace
}  // namespace ebclr::data
