#include "index/index_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "core/files.h"
#include "expect_error.h"
#include "made.h"
#include "temp_dir.h"

namespace ebclr::index {
namespace {

/// Touches everything that a reader could ask for.
void use_all(const Index& index) {
  index.features();
  for (int64_t i = 0; i < index.size(); ++i) {
    index.thumbnail(i);
    index.small(i);
    index.path(i);
  }
  if (!index.graph().empty())
    for (int64_t i = 0; i < index.size(); ++i) {
      index.links(i, 0);
      const auto* first = index.graph().upper_first.data_ptr<int64_t>();
      for (int64_t layer = 1; layer <= first[i + 1] - first[i]; ++layer) index.links(i, layer);
    }
}

/// All that an index keeps of each image.
void expect_rows(const Index& index, const Contents& c) {
  EXPECT_TRUE(torch::equal(index.features(), c.features));
  for (int64_t i = 0; i < index.size(); ++i) {
    const auto k = static_cast<size_t>(i);
    EXPECT_EQ(index.path(i), c.paths[k]);
    EXPECT_EQ(index.record(i).sha256, c.records[k].sha256);
    EXPECT_EQ(index.record(i).energy, c.records[k].energy);
    EXPECT_EQ(std::memcmp(index.small(i), c.small[i].data_ptr(), kSmallSide * kSmallSide), 0);
    const auto t = index.thumbnail(i);
    EXPECT_TRUE(std::equal(t.begin(), t.end(), c.thumbnails[k].begin(), c.thumbnails[k].end()));
  }
}

TEST(IndexFile, GivesBackWhatWasWritten) {
  testing::TempDir dir;
  auto c = made(50, 12, 1, true);
  c.small += torch::arange(50).view({50, 1, 1}).to(torch::kUInt8);
  write_index(dir / "a.idx", c);
  const auto index = Index::open(dir / "a.idx");
  EXPECT_EQ(index.size(), 50);
  EXPECT_TRUE(torch::equal(index.references(), c.references));
  EXPECT_EQ(index.info().folder, "/photos");
  expect_rows(index, c);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(index.find(c.paths[static_cast<size_t>(i)]), i);
  EXPECT_EQ(index.find("img000007.pn"), -1);
  EXPECT_EQ(index.find("zzz"), -1);
  use_all(index);
}

TEST(IndexFile, EveryTruncationIsNoticed) {
  testing::TempDir dir;
  write_index(dir / "a.idx", made(6, 8));
  const auto bytes = core::read_bytes(dir / "a.idx", "test");
  for (size_t n = 0; n < bytes.size(); n += n < 200 ? 1 : 97) {
    std::ofstream(dir / "cut.idx", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(n));
    EXPECT_THROW(Index::open(dir / "cut.idx"), core::Error) << n << " bytes";
  }
}

TEST(IndexFile, EveryChangedByteIsNoticedBeforeItIsBelieved) {
  testing::TempDir dir;
  const auto c = made(6, 8, 1, true);
  write_index(dir / "a.idx", c);
  const auto whole = core::read_bytes(dir / "a.idx", "test");
  int64_t noticed = 0, harmless = 0;
  for (size_t at = 0; at < whole.size(); at += 7) {
    SCOPED_TRACE(at);
    auto bytes = whole;
    bytes[at] ^= std::byte{0x10};
    std::ofstream(dir / "bad.idx", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    try {
      const auto index = Index::open(dir / "bad.idx");
      use_all(index);
      // Not noticed: then it was padding, and everything reads as it was written.
      expect_rows(index, c);
      EXPECT_TRUE(torch::equal(index.graph().links, c.graph.links));
      ++harmless;
    } catch (const core::Error&) {
      ++noticed;
    }
  }
  EXPECT_GT(noticed, 10 * harmless);
}

TEST(IndexFile, SizesThatNoPictureIsReadAtAreRefused) {
  testing::TempDir dir;
  for (const auto& [channels, side] :
       {std::pair{0, 32}, {2, 32}, {4, 32}, {-1, 32}, {3, 0}, {3, 7}, {3, 1025}, {1, -32}}) {
    SCOPED_TRACE(std::to_string(channels) + " x " + std::to_string(side));
    auto c = made(3, 4);
    c.info.channels = channels;
    c.info.image_size = side;
    write_index(dir / "a.idx", c);  // with the right checksums
    testing::expect_error(
        core::ExitCode::kUsage, [&] { Index::open(dir / "a.idx"); }, "damaged", "channels", "--fresh");
  }
  for (const int64_t side : {8, 1024}) {
    auto c = made(3, 4);
    c.info.channels = 1;
    c.info.image_size = side;
    write_index(dir / "a.idx", c);
    EXPECT_EQ(Index::open(dir / "a.idx").info().image_size, side);
  }
}

TEST(IndexFile, FoldersAreBytesAndNeedNotBeText) {
  testing::TempDir dir;
  auto c = made(3, 4);
  c.info.folder = "/bilder/\xe9t\xe9";  // Latin-1
  write_index(dir / "a.idx", c);
  EXPECT_EQ(Index::open(dir / "a.idx").info().folder, c.info.folder);
  EXPECT_EQ(Index::open(dir / "a.idx").info().run, "/runs/x");
  EXPECT_EQ(core::read_text(dir / "a.idx", "test").find("run_bytes"), std::string::npos)
      << "text stays text alone";
  c.info.run = "/l\xe4ufe";
  c.info.folder = "/bilder/\u00e9t\u00e9";
  write_index(dir / "a.idx", c);
  EXPECT_EQ(Index::open(dir / "a.idx").info().run, c.info.run);
  EXPECT_EQ(Index::open(dir / "a.idx").info().folder, c.info.folder);
}

TEST(IndexFile, OldFilesOfRivalsHaveNoEnergies) {
  testing::TempDir dir;
  auto c = made(3, 4);
  c.info.method = "simclr";
  write_index(dir / "a.idx", c);
  EXPECT_FALSE(Index::open(dir / "a.idx").info().has_energies);
  c.info.method = "supervised";  // with the generative term, perhaps
  write_index(dir / "a.idx", c);
  EXPECT_TRUE(Index::open(dir / "a.idx").info().has_energies);
}

TEST(IndexFile, SaysWhatIsWrong) {
  testing::TempDir dir;
  using testing::expect_error;
  const auto open = [&](const char* name) { return [&dir, name] { Index::open(dir / name); }; };
  expect_error(core::ExitCode::kUsage, open("none.idx"), "no such index", "ebclr index");
  std::ofstream(dir / "text.idx") << "hello, this is not an index but a text file of some length, you see";
  expect_error(core::ExitCode::kUsage, open("text.idx"), "not an index");
  ASSERT_EQ(::mkfifo((dir / "pipe.idx").c_str(), 0600), 0);
  expect_error(core::ExitCode::kUsage, open("pipe.idx"), "no such index",
               "is a pipe");  // and it is said at once
  expect_error(core::ExitCode::kUsage, open("."), "is a folder");
  write_index(dir / "a.idx", made(3, 4));
  std::fstream file(dir / "a.idx", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8);
  file.put(9);
  file.close();
  expect_error(core::ExitCode::kUsage, open("a.idx"), "format 9", "--fresh");
}

}  // namespace
}  // namespace ebclr::index
