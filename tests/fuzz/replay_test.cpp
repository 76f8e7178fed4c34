// The corpus, through every target: seeds, and what fuzzing once found. Needs no clang.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/files.h"
#include "targets.h"

namespace ebclr::fuzz {
namespace {
namespace fs = std::filesystem;

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, EveryFileEndsInAValueOrALine) {
  const auto& target = GetParam();
  const auto folder = fs::path(EBCLR_FUZZ_CORPUS) / target.name;
  ASSERT_TRUE(fs::is_directory(folder)) << folder << " holds the seeds of this target";
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  // Pictures of every format that the decoder knows.
  if (target.name.starts_with("image") && target.name != "image_list")
    for (const auto& entry : fs::directory_iterator(EBCLR_PICTURES))
      if (entry.is_regular_file() && entry.file_size() <= 4096) paths.push_back(entry.path());
  // What a long search has learned (tools/fuzz), when there was one.
  std::error_code ec;
  if (const char* more = std::getenv("EBCLR_FUZZ_MORE"))
    for (const auto& entry : fs::directory_iterator(fs::path(more) / target.name, ec))
      paths.push_back(entry.path());
  int files = 0, values = 0;
  for (const auto& path : paths) {
    const auto bytes = core::read_bytes(path, "test");
    EXPECT_EQ(run(target, bytes), "") << path;
    ++files;
    try {
      target.read(bytes);
      ++values;
    } catch (const std::exception&) {
    }
    // Every prefix of a small one, and every one with a byte changed.
    if (bytes.size() > 400) continue;
    for (size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 40) {
      EXPECT_EQ(run(target, {bytes.data(), n}), "") << path << " cut at " << n;
      auto changed = bytes;
      changed[n] ^= std::byte{0x5a};
      EXPECT_EQ(run(target, changed), "") << path << " changed at " << n;
    }
  }
  EXPECT_GE(files, 2);
  EXPECT_GE(values, 1) << "at least one seed must be a good file";
}

INSTANTIATE_TEST_SUITE_P(Readers, Corpus, ::testing::ValuesIn(targets()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebclr::fuzz
