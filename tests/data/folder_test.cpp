#include "data/folder.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <set>

#include "core/files.h"
#include "data/catalog.h"
#include "data/copies.h"
#include "data/scratch.h"
#include "data/walk.h"
#include "image/make_images.h"
#include "image/read_file.h"
#include "image/resize.h"

namespace ebclr::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ebclr::testing::encode;
using ebclr::testing::plain;
using ebclr::testing::two_colours;

// Names that readdir (at the end of this file) still gives before it fails; negative: all of them.
std::atomic<int> names_left = -1;

struct FailingListing {
  explicit FailingListing(int names) { names_left = names; }
  ~FailingListing() { names_left = -1; }
};

// No two of these are copies of each other, though files of neighbours may be of one size.
std::string picture(int i) {
  return encode(two_colours(40 + i, 20), ".png");
}

std::vector<std::string> paths_of(const Found& found) {
  std::vector<std::string> out;
  for (const auto& f : found.files) out.push_back(f.path);
  return out;
}

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
    dir.write(fmt::format("{:02}.png", i), picture(i));
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
  EXPECT_THAT(read_folder(dir / "one", {}).notes, ::testing::IsEmpty()) << "there are no classes to miss";
}

TEST(Folder, AFolderThatKeepsOthersFromBeingClassesIsNamed) {
  const Scratch dir;
  int i = 0;
  for (const char* name : {"in/discs/1.png", "in/rings/2.png", "in/discs/old/3.png"})
    dir.write(name, picture(++i));
  const auto set = read_folder(dir / "in", {});
  EXPECT_EQ(set.classes(), 0);
  EXPECT_THAT(set.notes, ElementsAre(AllOf(HasSubstr("(discs/old)"), HasSubstr("do not count as classes"))));
  dir.write("in/rings/new/4.png", picture(++i));
  EXPECT_THAT(read_folder(dir / "in", {}).notes, ElementsAre(HasSubstr("(discs/old, and in 1 more)")));
  // The same within a split.
  for (const char* name :
       {"s/train/a/1.png", "s/train/b/2.png", "s/train/a/old/3.png", "s/test/a/4.png", "s/test/b/5.png"})
    dir.write(name, picture(++i));
  EXPECT_THAT(error_of([&] { load({.source = (dir / "s").string(), .image_size = 16}); }),
              AllOf(HasSubstr("different class folders (0 and 2)"), HasSubstr("(a/old)")));
}

// As a run of training lies there, with what it drew.
void write_run(const Scratch& dir, const std::string& where) {
  dir.write(where + "/config.yaml", "method:\n  name: ebclr\n");
  dir.write(where + "/checkpoints/step-00000008-r0.safetensors", "");
  dir.write(where + "/samples/epoch-0001.png", picture(90));
  dir.write(where + "/curves.png", picture(91));
}

TEST(Folder, WhatRunsDrewIsNoData) {
  const Scratch dir;
  for (int i = 0; i < 10; ++i) dir.write(fmt::format("{}/{}.png", i % 2 ? "x" : "y", i), picture(i));
  const SourceOptions o{.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2};
  const auto before = load(o);
  EXPECT_THAT(before.train.notes, ::testing::IsEmpty());
  write_run(dir, "runs/ebclr-x");
  write_run(dir, "x/mine");
  const auto after = load(o);
  EXPECT_EQ(after.list.fingerprint(), before.list.fingerprint());
  EXPECT_TRUE(compare(before.list, after.list).none()) << compare(before.list, after.list).text();
  EXPECT_THAT(after.train.class_names, ElementsAre("x", "y"));
  EXPECT_THAT(after.train.notes, ElementsAre("left out, written by runs: runs/ebclr-x, x/mine"));
  EXPECT_EQ(survey(dir.path()).files, 10);
  // A folder that is asked for by its name, and a folder of another program's.
  EXPECT_EQ(paths_of(find_pictures(dir / "runs/ebclr-x/samples")).size(), 1u);
  dir.write("project/config.yaml", "");
  dir.write("project/checkpoints/model.pt", "");
  dir.write("project/1.png", picture(20));
  EXPECT_THAT(paths_of(find_pictures(dir.path())), ::testing::Contains("project/1.png"));
  EXPECT_THAT(error_of([&] { read_folder(dir / "runs", {.image_size = 16}); }),
              AllOf(HasSubstr("no images in it"), HasSubstr("written by runs: ebclr-x")));
}

TEST(Folder, ARunInItsOwnPictureFolderDoesNotLearnFromItsSamples) {
  const Scratch dir;
  for (int i = 0; i < 10; ++i) dir.write(fmt::format("{}.png", i), picture(i));
  const SourceOptions o{.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2};
  const auto list = load(o).list;
  write_run(dir, ".");
  std::filesystem::remove(dir / "curves.png");
  EXPECT_TRUE(compare(list, load(o, {.list = &list}).list).none());
}

TEST(Folder, RunsThatLearntFromWhatOthersDrewKeepIt) {
  const Scratch dir;
  for (int i = 0; i < 10; ++i) dir.write(fmt::format("{}.png", i), picture(i));
  const SourceOptions o{.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2};
  write_run(dir, "runs/first");
  write_run(dir, "runs/second");
  auto list = load(o).list;
  list.images.push_back(
      {"runs/first/samples/epoch-0001.png", "train", picture(90).size(), "of another picture"});
  const auto again = load(o, {.list = &list});
  EXPECT_THAT(again.train.files, ::testing::Contains("runs/first/samples/epoch-0001.png"));
  EXPECT_THAT(again.train.notes, ::testing::Contains("left out, written by runs: runs/second"));
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

TEST(Folder, FilesComeInTheOrderOfTheirNames) {
  const Scratch dir;
  for (const char* name : {"ab.png", "a/z/1.png", "a/z.png", "a-b.png", "a/b.png", "a.b.png", "B.png"})
    dir.write(name, picture(0));
  EXPECT_THAT(paths_of(find_pictures(dir.path())),
              ElementsAre("B.png", "a/b.png", "a/z/1.png", "a/z.png", "a-b.png", "a.b.png", "ab.png"));
}

TEST(Folder, AFileOfManyNamesCountsOnceUnderItsOwn) {
  namespace fs = std::filesystem;
  const Scratch dir, outside;
  dir.write("real/1.png", picture(1));
  dir.write("real/2.png", picture(2));
  outside.write("out.png", picture(3));
  outside.write("more/4.png", picture(4));
  fs::create_symlink(dir / "real/1.png", dir / "a_link.png");
  fs::create_directory_symlink(dir / "real", dir / "album");
  fs::create_hard_link(dir / "real/2.png", dir / "real/hard.png");
  // What only links lead to stays, once.
  fs::create_symlink(outside / "out.png", dir / "o1.png");
  fs::create_symlink(outside / "out.png", dir / "o2.png");
  fs::create_directory_symlink(outside / "more", dir / "more");
  const auto found = find_pictures(dir.path());
  EXPECT_THAT(paths_of(found), ElementsAre("more/4.png", "o1.png", "real/1.png", "real/2.png"));
  std::vector<std::string> further;
  for (const auto& f : found.further_names) further.push_back(f.path);
  EXPECT_THAT(further, ElementsAre("a_link.png", "o2.png", "real/hard.png"));
  const auto set = read_folder(dir.path(), {.image_size = 16});
  EXPECT_EQ(set.size(), 4);
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("3 link(s) lead to images that the folder holds")));
}

TEST(Folder, ALabelMayNameALink) {
  const Scratch dir;
  for (int i = 0; i < 3; ++i) dir.write(fmt::format("i/real/{}.png", i), picture(i));
  std::filesystem::create_symlink("real/1.png", dir / "i/link.png");
  const auto set = read_folder(
      dir / "i", {.image_size = 16, .labels_csv = dir.write("l.csv", "link.png,a\nreal/2.png,b\n")});
  EXPECT_TRUE(torch::equal(set.labels, torch::tensor({-1, 0, 1}, torch::kInt64)));
}

TEST(Folder, ALabelMayNameAnyNameOfAFile) {
  namespace fs = std::filesystem;
  const Scratch dir, outside;
  for (int i = 0; i < 3; ++i) dir.write(fmt::format("main/{}.png", i), picture(i));
  fs::create_directory(dir / "backup");
  fs::create_hard_link(dir / "main/0.png", dir / "backup/0.png");  // before main: the name that is listed
  outside.write("3.png", picture(3));
  for (const char* name : {"all.png", "fav.png"}) fs::create_symlink(outside / "3.png", dir / name);
  const auto read = [&](const std::string& csv) {
    return read_folder(dir.path(), {.image_size = 16, .labels_csv = dir.write("l.csv", csv)});
  };
  const auto set = read("main/0.png,a\nmain/1.png,b\n" + (dir / "main/2.png").string() + ",a\nfav.png,b\n");
  EXPECT_THAT(set.files, ElementsAre("all.png", "backup/0.png", "main/1.png", "main/2.png"));
  EXPECT_TRUE(torch::equal(set.labels, torch::tensor({1, 0, 1, 0}, torch::kInt64)));
  EXPECT_THAT(set.notes, ElementsAre(HasSubstr("2 link(s)")));
  EXPECT_THAT(error_of([&] { read("main/0.png,a\nbackup/0.png,b\n"); }), HasSubstr("and a further up"));
}

TEST(Folder, ClassFoldersMayBeLinksIntoAPool) {
  namespace fs = std::filesystem;
  for (const bool hard : {false, true}) {
    const Scratch dir;
    for (const char* name : {"cat", "dog", "best"}) fs::create_directories(dir / name);
    const auto link = [&](int i, const char* folder) {
      const auto from = dir / fmt::format("all/{}.png", i), to = dir / fmt::format("{}/{}.png", folder, i);
      if (hard)
        fs::create_hard_link(from, to);
      else
        fs::create_symlink(from, to);
    };
    for (int i = 0; i < 7; ++i) {
      dir.write(fmt::format("all/{}.png", i), picture(i));
      if (i < 6) link(i, i % 2 ? "dog" : "cat");
    }
    const auto set = read_folder(dir.path(), {.image_size = 16});
    EXPECT_THAT(set.class_names, ElementsAre("cat", "dog"));
    EXPECT_TRUE(torch::equal(set.labels, torch::tensor({0, 1, 0, 1, 0, 1, -1}, torch::kInt64)));
    EXPECT_EQ(set.files[1], "all/1.png") << "names stay";
    EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("links lead to the images: cat, dog")));
    // A picture in two of them has no class.
    link(0, "dog");
    EXPECT_EQ(read_folder(dir.path(), {.image_size = 16}).labels[0].item<int64_t>(), kNoLabel);
  }
}

TEST(Folder, LinksInTrainLeaveTestAlone) {
  for (const char* target : {"..", "../test", "../test/x/4.png"}) {
    const Scratch dir;
    for (int i = 0; i < 6; ++i)
      dir.write(fmt::format("{}/{}/{}.png", i < 4 ? "train" : "test", i % 2 ? "y" : "x", i), picture(i));
    std::filesystem::create_symlink(target, dir / "train/up");
    const auto d = load({.source = dir.path().string(), .image_size = 16});
    EXPECT_THAT(d.train.files,
                ElementsAre("train/x/0.png", "train/x/2.png", "train/y/1.png", "train/y/3.png"));
    EXPECT_THAT(d.test.files, ElementsAre("test/x/4.png", "test/y/5.png"));
    EXPECT_TRUE(d.train.labelled() && d.test.labelled());
  }
}

TEST(Folder, ALinkToAFolderThatIsAwayIsSaid) {
  const Scratch dir;
  dir.write("here/1.png", picture(1));
  std::filesystem::create_directory_symlink(dir / "not_mounted", dir / "nas");
  EXPECT_THAT(read_folder(dir.path(), {.image_size = 16}).notes,
              ElementsAre("1 folder(s) or link(s) could not be read: nas"));
}

TEST(Folder, ManyCopiesOfOnePictureDoNotChangeTheShare) {
  const Scratch dir;
  for (int i = 0; i < 100; ++i) dir.write(fmt::format("{:02}.png", i), picture(i % 2 ? 0 : i));
  for (const uint64_t seed : {0, 7, 13}) {
    const auto d =
        load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0.1, .seed = seed});
    EXPECT_EQ(d.test.size(), 10) << seed;
    EXPECT_THAT(d.train.notes,
                ElementsAre(AllOf(HasSubstr("50 file(s) are copies"), HasSubstr("10 of 100"))));
  }
}

TEST(Folder, CopiesInManySmallClassesAreHeldOutAllTheSame) {
  const Scratch dir;  // one image of ten is less than a pair: classes give in turn
  for (int i = 0; i < 100; ++i) dir.write(fmt::format("c{}/{:02}.png", i / 10, i), picture(i / 2));
  EXPECT_EQ(load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0.1}).test.size(), 10);
}

TEST(Folder, AProbeAsksAboutPicturesThatItDoesNotKnow) {
  const Scratch dir;
  std::string csv;
  for (int i = 0; i < 36; ++i) {
    const auto name = fmt::format("{}/{:02}.png", i % 2 ? "a" : "b", i);
    dir.write("photos/" + name, picture(i / 3));
    csv += fmt::format("photos/{},{}\n", name, i % 2);
  }
  for (const auto& source : {dir / "photos", dir.write("l.csv", csv)}) {
    const auto d = load_probe(source, {.image_size = 16}, 1);
    EXPECT_EQ(d.train.size() + d.test.size(), 36);
    EXPECT_GE(d.test.size(), 9);
    const std::set<std::string> known(d.train.digests.begin(), d.train.digests.end());
    for (const auto& digest : d.test.digests) EXPECT_FALSE(known.contains(digest));
  }
  for (const char* name : {"same/a/1.png", "same/a/2.png", "same/b/3.png"}) dir.write(name, picture(1));
  EXPECT_THAT(error_of([&] { load_probe(dir / "same", {.image_size = 16}, 1); }),
              HasSubstr("too few pictures that differ"));
}

TEST(Folder, LabelsOutsideAKeptSplitAreCounted) {
  const Scratch dir;
  for (int i = 0; i < 20; ++i) dir.write(fmt::format("{}/{:02}.png", i % 2 ? "a" : "b", i), picture(i));
  SourceOptions o{.source = dir.path().string(), .image_size = 16, .labelled = true, .test_fraction = 0.2};
  const auto list = load(o).list;
  for (int i = 20; i < 23; ++i) dir.write(fmt::format("a/{:02}.png", i), picture(i));
  EXPECT_THAT(load(o, {.list = &list}).train.notes,
              ElementsAre(HasSubstr("3 labelled image(s) are not in the split")));
}

TEST(Folder, SplitsMadeOfLinksStaySplits) {
  namespace fs = std::filesystem;
  const Scratch dir;
  for (int i = 0; i < 6; ++i) {
    dir.write(fmt::format("pool/{}.png", i), picture(i));
    const std::string where = fmt::format("{}/{}", i < 4 ? "train" : "test", i % 2 ? "x" : "y");
    fs::create_directories(dir / where);
    fs::create_symlink(dir / fmt::format("pool/{}.png", i), dir / fmt::format("{}/{}.png", where, i));
  }
  const auto d = load({.source = dir.path().string(), .image_size = 16});
  EXPECT_THAT(d.train.files, ElementsAre("train/x/1.png", "train/x/3.png", "train/y/0.png", "train/y/2.png"));
  EXPECT_THAT(d.test.files, ElementsAre("test/x/5.png", "test/y/4.png"));
  EXPECT_TRUE(d.train.labelled() && d.test.labelled());
}

TEST(Folder, RunsThatKnowFilesByTheirLinksKeepThem) {
  namespace fs = std::filesystem;
  const Scratch dir;
  for (int i = 0; i < 10; ++i) dir.write(fmt::format("real/{}.png", i), picture(i));
  const SourceOptions o{.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2};
  // As they were listed once: link and target as two files, a linked folder instead of the real one.
  auto list = load(o).list;
  ASSERT_EQ(list.images.size(), 10u);
  fs::create_symlink(dir / "real/1.png", dir / "a_link.png");
  fs::create_directory_symlink(dir / "real", dir / "album");
  const auto of = [&](const char* path) {
    return std::find_if(list.images.begin(), list.images.end(),
                        [&](const auto& i) { return i.path == path; });
  };
  of("real/2.png")->path = "album/2.png";
  auto twice = *of("real/1.png");
  twice.path = "a_link.png";
  twice.split = "train";
  list.images.insert(list.images.begin(), twice);
  const auto again = load(o, {.list = &list});
  EXPECT_TRUE(compare(list, again.list).none()) << compare(list, again.list).text();
  EXPECT_EQ(again.list.fingerprint(), list.fingerprint()) << "and in the same order";
  EXPECT_EQ(again.train.files.front(), "a_link.png");
}

TEST(Folder, CopiesAreOnOneSideOfTheSplit) {
  const Scratch dir;
  for (int i = 0; i < 40; ++i)
    for (const char* name : {"x", "y"}) dir.write(fmt::format("{}/{:02}.png", name, i), picture(i));
  for (const uint64_t seed : {0, 1, 2}) {
    const auto d =
        load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0.1, .seed = seed});
    EXPECT_EQ(d.train.size(), 72);
    EXPECT_EQ(d.test.size(), 8);
    std::set<std::string> train, test;
    for (const auto& f : d.train.files) train.insert(f.substr(2));
    for (const auto& f : d.test.files) test.insert(f.substr(2));
    EXPECT_EQ(train.size() + test.size(), 40u) << "a picture is on both sides";
    EXPECT_THAT(d.train.notes, ElementsAre(HasSubstr("40 file(s) are copies of others")));
  }
  const auto d =
      load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0, .validation = 20});
  std::set<std::string> train;
  for (const auto& f : d.train.files) train.insert(f.substr(2));
  EXPECT_EQ(d.test.size(), 20);
  for (const auto& f : d.test.files) EXPECT_FALSE(train.contains(f.substr(2))) << f;
}

TEST(Folder, WithoutCopiesTheSplitIsThatOfTheNames) {
  const Scratch dir;
  std::vector<std::string> names;
  // Of one size and with the same beginning: only their ends tell them apart.
  for (int i = 0; i < 20; ++i)
    names.push_back(dir.write(fmt::format("{:02}.pgm", i),
                              "P5\n80 80\n255\n" + std::string(6399, 'x') + static_cast<char>('a' + i))
                        .filename()
                        .string());
  const auto d = load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0.25, .seed = 7});
  const auto held = hold_out(torch::full({20}, kNoLabel, torch::kInt64), 0.25, 7).second;
  std::vector<std::string> expected;
  for (int64_t i = 0; i < held.numel(); ++i)
    expected.push_back(names[static_cast<size_t>(held[i].item<int64_t>())]);
  EXPECT_EQ(d.test.files, expected);
  EXPECT_TRUE(d.train.notes.empty());
}

TEST(Folder, CopiesInSplitsThatAreGivenAreSaid) {
  const Scratch dir;
  for (const char* name : {"train/x/1.png", "test/x/again.png"}) dir.write(name, picture(1));
  for (const char* name : {"train/y/2.png", "train/y/3.png", "test/y/4.png"})
    dir.write(name, picture(name[8]));
  const auto d = load({.source = dir.path().string(), .image_size = 16});
  EXPECT_EQ(d.test.size(), 2);
  EXPECT_THAT(d.train.notes, ElementsAre("1 of 2 test images are copies of train images, byte for byte"));
}

TEST(Copies, AreFoundByTheirBytes) {
  const Scratch dir;
  const std::string large(10000, 'a');
  const std::vector<std::string> contents = {"xy",        "yx",        "xy",        "",  "",
                                             large + "1", large + "2", large + "1", "xy"};
  std::vector<FoundFile> files;
  for (size_t i = 0; i < contents.size(); ++i) {
    dir.write(std::to_string(i), contents[i]);
    files.push_back(*file_at(dir.path(), std::to_string(i)));
  }
  for (const int threads : {1, 3})
    EXPECT_THAT(first_of_equals(dir.path(), files, threads), ElementsAre(0, 1, 0, 3, 4, 5, 6, 5, 0));
  std::filesystem::remove(dir / "0");
  EXPECT_THAT(first_of_equals(dir.path(), files, 1), ElementsAre(0, 1, 2, 3, 4, 5, 6, 5, 2))
      << "what cannot be read is like no other";
}

TEST(Folder, AListingThatFailsHalfWayIsSaid) {
  const Scratch dir;
  for (int i = 0; i < 8; ++i) dir.write(fmt::format("{}.png", i), encode(two_colours(), ".png"));
  const FailingListing disk(5);  // "." and ".." may be among them
  const auto set = read_folder(dir.path(), {.image_size = 16});
  EXPECT_GE(set.size(), 3);
  EXPECT_LE(set.size(), 5);
  EXPECT_THAT(set.notes, ElementsAre("1 folder(s) or link(s) could not be read: ."));
}

TEST(Folder, ALimitDoesNotMakeTheBadOnesMost) {
  const Scratch dir;
  const auto link = [&](int from, int to) {
    for (int i = from; i < to; ++i)
      std::filesystem::create_symlink(dir / "nowhere", dir / fmt::format("link{:02}.png", i));
  };
  for (int i = 0; i < 20; ++i) dir.write(fmt::format("{:02}.png", i), picture(i));
  link(0, 6);
  const SourceOptions o{
      .source = dir.path().string(), .image_size = 16, .test_fraction = 0.1, .limit = 3, .limit_test = 1};
  const auto d = load(o);
  EXPECT_EQ(d.train.size(), 3);
  EXPECT_EQ(d.test.size(), 1);
  EXPECT_EQ(d.problems.size(), 6u);
  EXPECT_THAT(d.train.notes.at(0), HasSubstr("6 of 26 files could not be read"));
  // Damaged pictures count among those that were decoded, and broken links in the whole folder.
  for (int i = 0; i < 19; ++i) dir.write(fmt::format("{:02}.png", i), fmt::format("no image {}", i));
  EXPECT_THAT(error_of([&] { load(o); }), HasSubstr("of 4 images cannot be read"));
  link(6, 30);
  EXPECT_THAT(error_of([&] { load(o); }), HasSubstr("30 of 50 images cannot be read"));
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
  dir.write("i/broken.png", "no picture");
  EXPECT_THAT(labelled("a.png,x\nb.png,y\nbroken.png,x\n").notes,
              ::testing::Contains(HasSubstr("2 of 5 images have a label")))
      << "what cannot be read is no image";
  std::filesystem::remove(dir / "i/broken.png");
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
    dir.write(std::string(i % 2 ? "x" : "y") + "/" + std::to_string(i) + ".png", picture(i));
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

TEST(Folder, WhatLiesBesideTheSplitsIsCounted) {
  const Scratch dir;
  int i = 0;
  for (const char* name :
       {"train/1.png", "train/2.png", "test/3.png", "val/4.png", "val/5.png", "more/6.png", "7.png"})
    dir.write(name, picture(++i));
  const auto d = load({.source = dir.path().string(), .image_size = 16});
  EXPECT_EQ(d.train.size(), 2);
  EXPECT_EQ(d.test.size(), 1);
  EXPECT_THAT(d.train.notes,
              ElementsAre("4 image(s) lie beside train and test and are in neither: 7.png, more, val"));
}

TEST(Folder, LabelsOfACsvLeaveTheSplitsOfTheFolders) {
  const Scratch dir;
  std::string csv;
  for (int i = 0; i < 20; ++i) {
    const auto name = fmt::format("{}/{:02}.png", i < 12 ? "train" : "test", i);
    dir.write("in/" + name, picture(i));
    if (i != 3) csv += fmt::format("{},{}\n", name, i % 2 ? "odd" : "even");
  }
  SourceOptions o{.source = (dir / "in").string(),
                  .image_size = 16,
                  .labels_csv = dir.write("labels.csv", csv).string(),
                  .test_fraction = 0.5};
  const auto all_in = [](const ImageSet& set, const char* folder) {
    return std::all_of(set.files.begin(), set.files.end(),
                       [&](const auto& f) { return f.starts_with(folder); });
  };
  for (const bool labelled : {false, true}) {
    o.labelled = labelled;
    const auto d = load(o);
    EXPECT_EQ(d.train.size(), labelled ? 11 : 12);
    EXPECT_EQ(d.test.size(), 8);
    EXPECT_TRUE(all_in(d.train, "train/") && all_in(d.test, "test/"));
    EXPECT_THAT(d.train.class_names, ElementsAre("even", "odd"));
    EXPECT_TRUE(d.test.labelled());
  }
  // A run that was begun with another split keeps it.
  auto list = load(o).list;
  for (auto& i : list.images)
    if (i.used()) i.split = i.split == "train" ? "test" : "train";
  EXPECT_TRUE(all_in(load(o, {.list = &list}).train, "test/"));
  // Labels of train alone: a part of these is held out, and test is not learnt from.
  o.labels_csv = dir.write("train.csv", csv.substr(0, csv.find("test/"))).string();
  const auto d = load(o);
  EXPECT_EQ(d.train.size() + d.test.size(), 11);
  EXPECT_GE(d.test.size(), 4);
  EXPECT_TRUE(all_in(d.train, "train/") && all_in(d.test, "train/"));
  o.labels_csv = dir.write("test.csv", csv.substr(csv.find("test/"))).string();
  EXPECT_THAT(error_of([&] { load(o); }), HasSubstr("no train image has a label"));
}

TEST(Folder, ReadsAPictureAloneAsWithinASet) {
  const Scratch dir;
  image::Pixels noise(600, 500, 3);
  uint32_t x = 1;
  for (auto& p : noise.data) p = static_cast<uint8_t>((x = x * 1664525 + 1013904223) >> 24);
  // Short sides for which a JPEG of half or a quarter the size is large enough for the images, but not for
  // their larger copies, and others.
  for (const int side : {33, 64, 70, 90, 130, 256, 300, 500})
    for (const char* ending : {".jpg", ".png"})
      dir.write(fmt::format("{:03}{}", side, ending),
                encode(image::resize(noise, {0, 0, 600, 500}, side + 20, side), ending));
  for (const bool grey : {false, true})
    for (const int64_t size : {16, 32, 60, 64}) {
      const auto set = read_folder(dir.path(), {.image_size = size, .grayscale = grey});
      for (int64_t i = 0; i < set.size(); ++i) {
        const auto& name = set.files[static_cast<size_t>(i)];
        auto alone = torch::empty({grey ? 1 : 3, size, size}, torch::kUInt8);
        decode_image(image::read_regular(dir / name), name, size, grey, alone.data_ptr<uint8_t>());
        EXPECT_TRUE(torch::equal(alone, set.pixels[i])) << name << " at " << size;
      }
    }
}

}  // namespace
}  // namespace ebclr::data

// libc's name, first in the line of those who answer to it. Visible, whatever the flags say: the calls of
// libstdc++ must come here.
#pragma GCC visibility push(default)
extern "C" dirent* readdir(DIR* folder) {
  static const auto next = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  auto& left = ebclr::data::names_left;
  if (left == 0) {
    errno = EIO;
    return nullptr;
  }
  if (left > 0) --left;
  return next(folder);
}
#pragma GCC visibility pop
