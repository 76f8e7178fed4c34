#include "index/build.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/files.h"
#include "data/catalog.h"
#include "expect_error.h"
#include "index/duplicates.h"
#include "index/outliers.h"
#include "made.h"
#include "run/checkpoint.h"
#include "run/config.h"
#include "run/images.h"
#include "temp_dir.h"

namespace ebclr::index {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// While true, readdir (at the end of this file) cannot list folders of the name "secret".
std::atomic<bool> closed = false;

/// A run of an encoder of width 4 that knows nothing, and a folder of pictures.
class Build : public ::testing::Test {
 protected:
  testing::TempDir dir;
  const fs::path out = dir / "photos.idx";

  void SetUp() override {
    make_run({});
    for (int i = 0; i < 4; ++i) picture(fmt::format("{}.pgm", i), static_cast<char>('a' + i));
  }
  void TearDown() override { closed = false; }

  void make_run(const std::vector<std::pair<std::string, std::string>>& settings) const {
    const auto config = run::resolve({{"test",
                                       {{"encoder.width", "4"},
                                        {"head.out", "4"},
                                        {"head.hidden", "4"},
                                        {"data.source", "shapes"},
                                        {"data.limit", "8"},
                                        {"data.limit_test", "8"}}},
                                      {"settings", settings}});
    const auto networks = nn::make_networks(config.method.encoder, config.method.head, 0);
    run::Snapshot snapshot;
    for (const auto& [name, tensor] : nn::state_of(*networks.encoder, "method/encoder."))
      snapshot.tensors.tensors[name] = tensor.detach();
    for (const auto& [name, tensor] : nn::state_of(*networks.head, "method/head."))
      snapshot.tensors.tensors[name] = tensor.detach();
    snapshot.small = {{"image", {3, 32, 32}}, {"method", {{"balance", 1.5}}}};
    fs::create_directories(dir / "run");
    core::write_atomically(dir / "run/config.yaml", run::to_yaml(config), "test");
    run::write_checkpoint(run::RunFolder{dir / "run"}.checkpoints(), snapshot);
  }
  /// The run is one that was trained on the images of this folder.
  void learn_from(const fs::path& folder) const {
    make_run({{"data.source", folder.string()}, {"data.limit", "0"}, {"data.limit_test", "0"}});
    const auto sets = data::load(run::Run::open(dir / "run").config().data);
    run::write_image_list(run::RunFolder{dir / "run"}, sets.list);
  }
  /// New pixels in all of the four files.
  void change_all() const {
    for (int i = 0; i < 4; ++i) {
      picture(fmt::format("{}.pgm", i), static_cast<char>('A' + i));
      fs::last_write_time(dir / fmt::format("photos/{}.pgm", i),
                          fs::file_time_type::clock::now() - std::chrono::hours(1));
    }
  }
  void picture(const std::string& name, char grey) const {
    const auto path = dir / "photos" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << "P5\n16 16\n255\n" << std::string(256, grey);
  }
  BuildReport build(const BuildOptions& options = {}, int64_t image_size = 0) const {
    std::vector<std::string> notes;
    const auto looker =
        load_looker(run::Run::open(dir / "run"),
                    {.image_size = image_size, .references = 4, .images = (dir / "photos").string()}, notes);
    return build_index(looker, dir / "photos", out, options);
  }
  static std::vector<std::string> lines(const std::vector<data::FileProblem>& problems) {
    std::vector<std::string> all;
    for (const auto& p : problems) all.push_back(line(p));
    return all;
  }
};

TEST_F(Build, ADescriptionThatIsNotOfItsEncoderIsRefused) {
  build();
  const auto good = Index::open(out).info();
  const auto write = [&](const IndexInfo& info, int64_t reference_width) {
    auto c = made(3, info.dim);
    c.references = torch::ones({4, reference_width});
    c.info = info;
    c.info.count = 3;
    write_index(out, c);
  };
  const auto load = [&] { load_looker(Index::open(out), "", {}); };
  write(good, 4);
  EXPECT_NO_THROW(load());
  auto grey = good, narrow = good;
  grey.channels = 1;
  narrow.dim = good.dim - 1;
  for (const auto& [info, width] : {std::pair{grey, 4}, {narrow, 4}, {good, 5}}) {
    write(info, width);
    testing::expect_error(core::ExitCode::kUsage, load, "photos.idx", "damaged", "--fresh");
    testing::expect_error(
        core::ExitCode::kUsage, [&] { build(); }, "photos.idx", "damaged", "--fresh");
  }
}

TEST_F(Build, AnInterruptionLeavesWhatItDidNotReach) {
  build();
  const auto old = Index::open(out);
  change_all();
  picture("new.pgm", 'n');
  int asked = 0;
  const auto r = build({.stop = [&] { return ++asked > 1; }, .chunk = 2});
  EXPECT_TRUE(r.stopped);
  EXPECT_TRUE(r.written);
  EXPECT_EQ(r.unreached, 3);
  EXPECT_EQ(r.kept, 2);
  EXPECT_EQ(r.added, 2);
  EXPECT_EQ(r.changed, 2);
  EXPECT_EQ(r.removed, 0);
  const auto index = Index::open(out);
  ASSERT_EQ(index.size(), 4);
  for (const int64_t i : {0, 1}) EXPECT_NE(index.record(i).sha256, old.record(i).sha256) << i;
  for (const int64_t i : {2, 3}) EXPECT_EQ(index.record(i).sha256, old.record(i).sha256) << i;
  const auto rest = build();
  EXPECT_FALSE(rest.stopped);
  EXPECT_EQ(rest.unreached, 0);
  EXPECT_EQ(rest.kept, 2);
  EXPECT_EQ(rest.changed, 2);
  EXPECT_EQ(Index::open(out).size(), 5);
}

TEST_F(Build, AnInterruptionBeforeTheFirstImageWritesNothing) {
  const auto stop = [] { return true; };
  const auto first = build({.stop = stop});
  EXPECT_TRUE(first.stopped);
  EXPECT_FALSE(first.written);
  EXPECT_EQ(first.unreached, 4);
  EXPECT_EQ(first.kept + first.added, 0);
  EXPECT_FALSE(fs::exists(out));
  build();
  const auto bytes = core::read_bytes(out, "test");
  change_all();
  fs::remove(dir / "photos/3.pgm");
  const auto second = build({.stop = stop});
  EXPECT_FALSE(second.written);
  EXPECT_EQ(second.unreached, 3);
  EXPECT_EQ(second.kept, 4);
  EXPECT_EQ(second.removed, 0);
  build({.fresh = true, .stop = stop});
  EXPECT_EQ(core::read_bytes(out, "test"), bytes);
}

TEST_F(Build, EnergiesComeWithTheRunsImagesAndStay) {
  fs::copy(dir / "photos", dir / "first");
  learn_from(dir / "first");
  // The folder that is indexed holds what the run has learnt from.
  fs::rename(dir / "first", dir / "away");
  const auto moved = build();
  EXPECT_TRUE(moved.energies);
  EXPECT_THAT(moved.notes, IsEmpty());
  // Now it does not.
  for (int i = 0; i < 4; ++i)
    fs::rename(dir / fmt::format("photos/{}.pgm", i), dir / fmt::format("photos/other{}.pgm", i));
  const auto without = build({.fresh = true});
  EXPECT_FALSE(without.energies);
  EXPECT_THAT(without.notes, ElementsAre(HasSubstr((dir / "first").string() + " any more")));
  EXPECT_FALSE(Index::open(out).info().has_energies);
  EXPECT_TRUE(std::isnan(Index::open(out).record(0).energy));
  // They are back: the index gets what it lacks, without a look at any file.
  fs::rename(dir / "away", dir / "first");
  const auto back = build();
  EXPECT_EQ(back.kept, 4);
  EXPECT_TRUE(back.energies);
  EXPECT_EQ(back.references, 4);
  EXPECT_THAT(back.notes, ElementsAre(HasSubstr("4 image(s) that had no energies")));
  const auto added = Index::open(out).energies();
  EXPECT_TRUE(Index::open(out).info().has_energies);
  EXPECT_THAT(build().notes, IsEmpty()) << "once";
  build({.fresh = true});
  EXPECT_TRUE(torch::allclose(added, Index::open(out).energies(), 1e-4, 1e-4));
  // An index that has them keeps them without the images, and nobody needs to know.
  fs::rename(dir / "first", dir / "away");
  const auto kept = build();
  EXPECT_TRUE(kept.energies);
  EXPECT_THAT(kept.notes, IsEmpty());
}

TEST_F(Build, WhyThereAreNoEnergiesIsSaidInTheErrorsOwnWords) {
  make_run({{"data.source", "cifar10"}, {"data.root", (dir / "none").string()}});
  EXPECT_THAT(build().notes, ElementsAre(HasSubstr("ebclr data get cifar10")));
}

TEST_F(Build, OnlyMethodsWithADensityHaveEnergies) {
  EXPECT_TRUE(build().energies);
  make_run({{"method.name", "simclr"}});
  const auto rival = build({.fresh = true});
  EXPECT_FALSE(rival.energies);
  EXPECT_THAT(rival.notes, IsEmpty()) << "nothing is missed";
  EXPECT_TRUE(std::isnan(Index::open(out).record(0).energy));
  EXPECT_FALSE(Index::open(out).references().defined());
  testing::expect_error(
      core::ExitCode::kUsage, [&] { outlier_scores(Index::open(out), {.by = "energy"}); },
      "simclr learns no density", "--by combined");
}

TEST_F(Build, AFolderWhoseNameIsNoTextIsKnownAgain) {
  const auto folder = dir / "f\xff\xfe";
  fs::rename(dir / "photos", folder);
  std::vector<std::string> notes;
  const auto looker = load_looker(run::Run::open(dir / "run"), {.references = 4}, notes);
  build_index(looker, folder, out, {});
  const auto again = build_index(looker, folder, out, {});
  EXPECT_EQ(again.kept, 4);
  EXPECT_EQ(again.added, 0);
  EXPECT_THAT(vanished(Index::open(out), {0, 1, 2, 3}), IsEmpty());
}

TEST_F(Build, FreshReplacesAnIndexAndNothingElse) {
  core::write_atomically(out, "print('the work of an evening')\n", "test");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { build({.fresh = true}); }, "photos.idx", "no index of ebclr",
      "name another --out");
  EXPECT_EQ(core::read_text(out, "test"), "print('the work of an evening')\n");
  core::write_atomically(out, "", "test");
  EXPECT_EQ(build({.fresh = true}).added, 4) << "an empty file is nobody's work";
  EXPECT_EQ(build({.fresh = true}).added, 4);
  fs::resize_file(out, 100);
  EXPECT_EQ(build({.fresh = true}).added, 4) << "damaged";
  EXPECT_EQ(Index::open(out).size(), 4);
}

TEST_F(Build, AnotherSizeIsNotAnotherEncoder) {
  build();
  const auto text = testing::expect_error(
      core::ExitCode::kUsage, [&] { build({}, 16); }, "read at 32 pixels, not 16", "--image-size 32",
      "--fresh");
  EXPECT_EQ(text.find("encoder"), std::string::npos) << text;
  EXPECT_EQ(build({}, 32).kept, 4);
}

TEST_F(Build, AFolderThatIsNotThereIsNotAnEmptyOne) {
  const auto message = [&](const fs::path& folder, const char* expected) {
    std::vector<std::string> notes;
    const auto looker = load_looker(run::Run::open(dir / "run"), {.references = 4}, notes);
    testing::expect_error(
        core::ExitCode::kUsage, [&] { build_index(looker, folder, out, {}); }, expected);
  };
  message(dir / "nosuch", "nosuch: no such folder");
  message(dir / "photos/0.pgm", "0.pgm: not a folder");
  fs::create_directory(dir / "empty");
  message(dir / "empty", "no images in it or below it");
}

TEST_F(Build, WhatCouldNotBeLookedAtIsNamedAndStays) {
  picture("secret/hidden.pgm", 'x');
  picture("secret/deep/too.pgm", 'y');
  fs::create_symlink("nowhere", dir / "photos/dangling.png");
  const auto first = build();
  EXPECT_EQ(first.added, 6);
  EXPECT_THAT(lines(first.unreadable), ElementsAre("dangling.png: No such file or directory"));
  closed = true;
  fs::remove(dir / "photos/3.pgm");
  const auto renewed = build();
  EXPECT_THAT(renewed.unseen,
              Contains("secret: a folder that could not be listed; 2 image(s) of it stay as they were"));
  EXPECT_THAT(lines(renewed.unreadable), ElementsAre("dangling.png: No such file or directory"));
  EXPECT_EQ(renewed.kept, 5);
  EXPECT_EQ(renewed.removed, 1) << "3.pgm";
  EXPECT_GE(Index::open(out).find("secret/deep/too.pgm"), 0);
  EXPECT_THAT(lines(build({.fresh = true}).unreadable),
              Contains("secret: a folder that could not be listed"));
  closed = false;
  fs::remove(dir / "photos/secret/hidden.pgm");
  EXPECT_EQ(build().kept, 3);
}

TEST_F(Build, WhatLiesBehindLinksThatLeadNowhereNowStays) {
  picture("../nas/a.pgm", 'x');
  picture("../nas/deep/b.pgm", 'y');
  fs::create_directory_symlink(dir / "nas", dir / "photos/nas");
  fs::create_symlink(dir / "nas/deep/b.pgm", dir / "photos/b.pgm");
  picture("../other/c.pgm", 'z');
  fs::create_symlink(dir / "other/c.pgm", dir / "photos/c.pgm");
  EXPECT_EQ(build().added, 7);
  for (const char* name : {"nas", "other"}) fs::rename(dir / name, dir / (std::string(name) + "_away"));
  const auto renewed = build();
  EXPECT_EQ(renewed.kept, 7);
  EXPECT_EQ(renewed.removed, 0);
  EXPECT_THAT(renewed.unseen, Contains(HasSubstr("nas: a link that could not be followed; 1 image(s)")));
  EXPECT_THAT(renewed.unseen, Contains(HasSubstr("c.pgm: No such file or directory; it stays as it was")));
  EXPECT_TRUE(renewed.unreadable.empty()) << "what stays was not left out";
  // What the user removes is gone.
  for (const char* name : {"nas", "c.pgm", "b.pgm"}) fs::remove(dir / "photos" / name);
  EXPECT_EQ(build().removed, 3);
}

TEST_F(Build, AnImageKeepsItsNameBesideNewLinks) {
  picture("main/x.pgm", 'x');
  build();
  fs::create_directory(dir / "photos/backup");
  fs::create_hard_link(dir / "photos/main/x.pgm", dir / "photos/backup/x.pgm");
  const auto again = build();
  EXPECT_EQ(again.kept, 5);
  EXPECT_EQ(again.added + again.removed, 0);
  EXPECT_GE(Index::open(out).find("main/x.pgm"), 0);
  fs::remove(dir / "photos/main/x.pgm");
  EXPECT_EQ(build().removed, 1);
  EXPECT_GE(Index::open(out).find("backup/x.pgm"), 0);
}

TEST_F(Build, WhatBecameUnreadableIsRemovedNotChanged) {
  build();
  std::ofstream(dir / "photos/1.pgm") << "garbage";
  picture("2.pgm", '2');
  fs::last_write_time(dir / "photos/2.pgm", fs::file_time_type::clock::now() - std::chrono::hours(1));
  const auto r = build();
  EXPECT_EQ(r.kept, 2);
  EXPECT_EQ(r.added, 1);
  EXPECT_EQ(r.changed, 1);
  EXPECT_EQ(r.removed, 1);
  ASSERT_EQ(r.unreadable.size(), 1u);
  EXPECT_EQ(r.unreadable[0].path, "1.pgm");
  EXPECT_EQ(r.unreadable[0].reason.find("1.pgm"), std::string::npos) << r.unreadable[0].reason;
  EXPECT_EQ(r.unreadable[0].reason.find('['), std::string::npos) << r.unreadable[0].reason;
}

TEST_F(Build, NamesOfOneFileAreOneImage) {
  fs::create_symlink("3.pgm", dir / "photos/0_link.pgm");
  fs::create_hard_link(dir / "photos/2.pgm", dir / "photos/9.pgm");
  picture("copy.pgm", 'b');  // of 1.pgm, and truly one
  EXPECT_EQ(build().added, 5);
  const auto index = Index::open(out);
  const auto groups = find_duplicates(index, {.agreement = 2});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(index.path(groups[0].rows[0]), "1.pgm");
  EXPECT_EQ(index.path(groups[0].rows[1]), "copy.pgm");
}

}  // namespace
}  // namespace ebclr::index

// libc's name, first in the line of those who answer to it; visible to libstdc++ whatever the flags say.
#pragma GCC visibility push(default)
extern "C" dirent* readdir(DIR* folder) {
  static const auto next = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  if (ebclr::index::closed) {
    char path[4096];
    const auto link = fmt::format("/proc/self/fd/{}", ::dirfd(folder));
    const auto n = ::readlink(link.c_str(), path, sizeof path);
    if (n > 0 && std::string_view(path, static_cast<size_t>(n)).ends_with("/secret")) {
      errno = EACCES;
      return nullptr;
    }
  }
  return next(folder);
}
#pragma GCC visibility pop
