#include "core/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
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
