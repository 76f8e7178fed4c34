#include "core/quiet_stderr.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

namespace ebclr::core {
namespace {

void say(const char* text) {
  std::fputs(text, stderr);
}

TEST(QuietStderr, HidesWhatIsWrittenWhileItLives) {
  ::testing::internal::CaptureStderr();
  say("a");
  {
    const QuietStderr outer;
    say("b");
    {
      const QuietStderr inner;
      say("c");
    }
    say("d");  // still hidden
    EXPECT_EQ(::write(STDERR_FILENO, "e", 1), 1);
  }
  say("f");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "af");
}

TEST(QuietStderr, ComesBackHoweverThreadsOverlap) {
  ::testing::internal::CaptureStderr();
  std::thread threads[4];
  for (auto& t : threads)
    t = std::thread([] {
      for (int i = 0; i < 50; ++i) {
        const QuietStderr quiet;
        say("x");
      }
    });
  for (auto& t : threads) t.join();
  say("back");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "back");
}

}  // namespace
}  // namespace ebclr::core
