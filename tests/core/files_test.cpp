#include "core/files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::core {
namespace {
namespace fs = std::filesystem;

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  testing::TempDir dir;
  {
    AtomicFile file(dir / "a", "test");
    file.write("half");
    EXPECT_FALSE(fs::exists(dir / "a"));
  }
  EXPECT_TRUE(fs::is_empty(dir.path())) << "a dropped file leaves nothing behind";
  AtomicFile file(dir / "a", "test");
  file.write("whole");
  file.commit();
  EXPECT_EQ(read_text(dir / "a", "test"), "whole");
}

TEST(AtomicFile, OldContentSurvivesAFailedWrite) {
  testing::TempDir dir;
  write_atomically(dir / "a", "old", "test");
  { AtomicFile(dir / "a", "test").write("new but never committed"); }
  EXPECT_EQ(read_text(dir / "a", "test"), "old");
}

TEST(AtomicFile, FullDiskIsSaidPlainly) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  // A rename target cannot be a device; writing through a link to it shows the write error itself.
  testing::TempDir dir;
  fs::create_symlink("/dev/full", (dir / "a").string() + "." + std::to_string(::getpid()) + ".tmp");
  testing::expect_error(
      ExitCode::kRunFailed,
      [&] {
        AtomicFile file(dir / "a", "test");
        file.write("x");
        file.commit();
      },
      "disk is full");
}

TEST(ReadBytes, MissingFileAndFolder) {
  testing::TempDir dir;
  testing::expect_error(
      ExitCode::kUsage, [&] { read_bytes(dir / "nothing", "test"); }, "[test]", "no such file");
  testing::expect_error(
      ExitCode::kUsage, [&] { read_bytes(dir.path(), "test"); }, "is a folder");
}

TEST(Sha256, KnownVectors) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  testing::TempDir dir;
  std::ofstream(dir / "abc") << "abc";
  EXPECT_EQ(sha256_file(dir / "abc", "test"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ebclr::core
