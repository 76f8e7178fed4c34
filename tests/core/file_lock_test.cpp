#include "core/file_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::core {
namespace {

TEST(FileLock, OneHolderAtATime) {
  testing::TempDir dir;
  auto first = FileLock::try_take(dir / "lock", "test");
  ASSERT_TRUE(first);
  EXPECT_FALSE(FileLock::try_take(dir / "lock", "test"));
  EXPECT_TRUE(FileLock::try_take(dir / "other", "test"));
  first.reset();
  EXPECT_TRUE(FileLock::try_take(dir / "lock", "test"));
}

/// A child that lives until the test is over, with a copy of everything that this process has open.
class ForkedChild {
 public:
  explicit ForkedChild(const std::function<void()>& first) {
    EXPECT_EQ(::pipe(ends_), 0);
    pid_ = ::fork();
    if (pid_ > 0) return;
    ::close(ends_[1]);
    first();
    char end = 0;
    ::_exit(::read(ends_[0], &end, 1) == 0 ? 0 : 1);
  }
  ~ForkedChild() {
    ::close(ends_[1]);
    ::close(ends_[0]);
    ::waitpid(pid_, nullptr, 0);
  }
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST(FileLock, AForkedChildDoesNotKeepIt) {
  testing::TempDir dir;
  auto first = FileLock::try_take(dir / "lock", "test");
  const ForkedChild child([] {});
  first.reset();
  EXPECT_TRUE(FileLock::try_take(dir / "lock", "test"));
}

TEST(FileLock, AForkedChildDoesNotReleaseIt) {
  testing::TempDir dir;
  auto first = FileLock::try_take(dir / "lock", "test");
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const ForkedChild child([&] {
    first.reset();
    EXPECT_EQ(::write(told[1], "x", 1), 1);
  });
  char word = 0;
  ASSERT_EQ(::read(told[0], &word, 1), 1);
  EXPECT_FALSE(FileLock::try_take(dir / "lock", "test"));
  for (const int end : told) ::close(end);
}

TEST(FileLock, WaitingSaysSoAndEndsWhenTheLockIsFree) {
  testing::TempDir dir;
  auto first = FileLock::try_take(dir / "lock", "test");
  std::atomic<bool> waited{false}, got{false};
  std::thread other([&] {
    const auto lock = FileLock::wait(dir / "lock", "test", [&] { waited = true; });
    got = true;
  });
  while (!waited) std::this_thread::yield();
  EXPECT_FALSE(got);
  first.reset();
  other.join();
  EXPECT_TRUE(got);
}

TEST(FileLock, AFolderThatIsNotThereIsAnError) {
  testing::TempDir dir;
  testing::expect_error(
      ExitCode::kRunFailed, [&] { FileLock::try_take(dir / "no" / "lock", "test"); }, "cannot be written");
}

}  // namespace
}  // namespace ebclr::core
