#include "core/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/file_lock.h"
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

TEST(AtomicFile, ReplacesALinkAndLeavesWhatItPointedTo) {
  testing::TempDir dir;
  write_atomically(dir / "precious", "mine", "test");
  fs::create_symlink(dir / "precious", dir / "report.html");
  write_atomically(dir / "report.html", "page", "test");
  EXPECT_EQ(read_text(dir / "precious", "test"), "mine");
  EXPECT_FALSE(fs::is_symlink(dir / "report.html"));
}

TEST(AtomicFile, ItsTemporaryCannotBePrepared) {
  testing::TempDir dir;
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i) {
    AtomicFile file(dir / "a", "test");
    for (const auto& entry : fs::directory_iterator(dir.path())) {
      EXPECT_TRUE(seen.insert(entry.path().filename().string()).second) << "the same name twice";
      EXPECT_EQ(entry.path().string().find(std::to_string(::getpid())), std::string::npos);
    }
  }
  EXPECT_EQ(seen.size(), 20u);
}

TEST(AtomicFile, SweepsWhatTheDeadLeftAndNotWhatTheLivingWrite) {
  testing::TempDir dir;
  AtomicFile living(dir / "a", "test");
  living.write("still here");
  std::ofstream(dir / ".ebclr-0123456789abcdef.tmp") << "half";
  std::ofstream(dir / "notes.tmp") << "not ours";
  write_atomically(dir / "b", "x", "test");
  EXPECT_FALSE(fs::exists(dir / ".ebclr-0123456789abcdef.tmp"));
  EXPECT_TRUE(fs::exists(dir / "notes.tmp"));
  living.commit();
  EXPECT_EQ(read_text(dir / "a", "test"), "still here");
}

TEST(AtomicFile, BytesGoToTheirPlaceInAnyOrder) {
  testing::TempDir dir;
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); };
  AtomicFile file(dir / "a", "test", 0600);
  file.write_at(6, bytes("world"));
  file.write_at(0, bytes("hello "));
  std::string back(5, ' ');
  file.read_at(6, std::as_writable_bytes(std::span(back.data(), back.size())));
  EXPECT_EQ(back, "world");
  testing::expect_error(
      ExitCode::kRunFailed, [&] { file.read_at(9, std::as_writable_bytes(std::span(back.data(), 5))); },
      "reading failed");
  EXPECT_FALSE(fs::exists(dir / "a"));
  file.commit();
  EXPECT_EQ(read_text(dir / "a", "test"), "hello world");
  EXPECT_EQ(fs::status(dir / "a").permissions() & fs::perms::others_read, fs::perms::none);
}

TEST(AtomicFile, LongNamesFit) {
  testing::TempDir dir;
  const std::string name(255, 'n');
  write_atomically(dir / name, "x", "test");
  EXPECT_EQ(read_text(dir / name, "test"), "x");
}

TEST(AtomicFile, MakesFoldersAndTakesThemBack) {
  testing::TempDir dir;
  write_atomically(dir / "a" / "b" / "file", "x", "test");
  EXPECT_EQ(read_text(dir / "a" / "b" / "file", "test"), "x");
  { AtomicFile(dir / "a" / "c" / "d" / "file", "test").write("never committed"); }
  EXPECT_FALSE(fs::exists(dir / "a" / "c"));
  { AtomicFile(dir / "a" / "b" / "other", "test").write("never committed"); }
  EXPECT_TRUE(fs::exists(dir / "a" / "b" / "file")) << "it was there before";
  testing::expect_error(
      ExitCode::kRunFailed, [&] { write_atomically(dir / "a" / "b" / "file" / "c" / "d", "x", "test"); },
      "cannot be written", "Not a directory");
}

TEST(CheckWritable, SaysItBeforeTheWorkAndLeavesNothing) {
  testing::TempDir dir;
  check_writable("", "test");
  check_writable(dir / "new" / "folder" / "file", "test");
  EXPECT_TRUE(fs::is_empty(dir.path()));
  write_atomically(dir / "file", "old", "test");
  check_writable(dir / "file", "test");
  EXPECT_EQ(read_text(dir / "file", "test"), "old");
  testing::expect_error(
      ExitCode::kUsage, [&] { check_writable(dir.path(), "test"); }, "is a folder; name a file");
  testing::expect_error(
      ExitCode::kUsage, [&] { check_writable(dir / "new/", "test"); }, "new/: names a folder; name a file");
  testing::expect_error(
      ExitCode::kRunFailed, [&] { check_writable(dir / "file" / "below", "test"); }, "cannot be written");
}

TEST(AppendFile, RefusesLinksAndPipes) {
  testing::TempDir dir;
  write_atomically(dir / "precious", "mine", "test");
  fs::create_symlink(dir / "precious", dir / "log");
  testing::expect_error(
      ExitCode::kRunFailed, [&] { AppendFile(dir / "log", "test"); }, "log", "link");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  testing::expect_error(
      ExitCode::kRunFailed, [&] { AppendFile(dir / "pipe", "test"); }, "pipe");
  AppendFile file(dir / "plain", "test");
  file.append("one\n");
  file.append("two\n");
  file.sync();
  EXPECT_EQ(read_text(dir / "plain", "test"), "one\ntwo\n");
}

TEST(MakeFolder, RefusesLinks) {
  testing::TempDir dir;
  fs::create_directory(dir / "elsewhere");
  fs::create_directory_symlink(dir / "elsewhere", dir / "link");
  testing::expect_error(
      ExitCode::kRunFailed, [&] { make_folder(dir / "link", "test"); }, "is a link");
  make_folder(dir / "a" / "b", "test");
  make_folder(dir / "a" / "b", "test");
  EXPECT_TRUE(fs::is_directory(dir / "a" / "b"));
}

TEST(MakeFolder, SaysWhyTheOnesAboveItCannotBeMade) {
  testing::TempDir dir;
  fs::permissions(dir.path(), fs::perms(0555));
  const auto user = ::geteuid();
  if (user == 0 && ::seteuid(65534) != 0) GTEST_SKIP() << "root may write everywhere";
  for (const auto& folder : {dir / "runs", dir / "runs" / "ebclr-photos"})
    testing::expect_error(
        ExitCode::kRunFailed, [&] { make_folder(folder, "test"); }, "cannot be created", "Permission denied");
  testing::expect_error(
      ExitCode::kRunFailed, [&] { check_writable(dir / "runs" / "x", "test"); }, "Permission denied");
  ASSERT_EQ(::seteuid(user), 0);
  fs::permissions(dir.path(), fs::perms(0755));
}

TEST(ReadBytes, APipeIsRefusedAtOnce) {
  testing::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  fs::create_symlink(dir / "pipe", dir / "metrics.jsonl");
  for (const char* name : {"pipe", "metrics.jsonl"}) {
    testing::expect_error(
        ExitCode::kUsage, [&] { read_text(dir / name, "test"); }, "pipe");
    testing::expect_error(
        ExitCode::kUsage, [&] { sha256_file(dir / name, "test"); }, "pipe");
  }
}

TEST(ReadBytes, ALimitIsKept) {
  testing::TempDir dir;
  std::ofstream(dir / "huge") << "x";
  fs::resize_file(dir / "huge", uint64_t{1} << 40);  // holes only
  testing::expect_error(
      ExitCode::kUsage, [&] { read_text(dir / "huge", "test", 1 << 20); }, "at most 1.0 MB");
}

TEST(FileLock, HoldsUntilItGoes) {
  testing::TempDir dir;
  {
    const auto one = FileLock::try_take(dir / ".lock", "test");
    ASSERT_TRUE(one);
    EXPECT_FALSE(FileLock::try_take(dir / ".lock", "test"));
  }
  EXPECT_TRUE(FileLock::try_take(dir / ".lock", "test"));
  fs::create_symlink(dir / "elsewhere", dir / "link");
  testing::expect_error(
      ExitCode::kRunFailed, [&] { FileLock::try_take(dir / "link", "test"); }, "link");
  EXPECT_FALSE(fs::exists(dir / "elsewhere"));
}

TEST(Error, KnowsLibtorchsWordsForNoMemory) {
  EXPECT_TRUE(
      says_out_of_memory("[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: "
                         "you tried to allocate "
                         "4000000000000 bytes. Error code 12 (Cannot allocate memory)"));
  EXPECT_TRUE(says_out_of_memory("CUDA out of memory. Tried to allocate 20.00 MiB"));
  EXPECT_FALSE(says_out_of_memory("The size of tensor a (3) must match"));
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
