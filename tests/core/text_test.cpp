#include "core/text.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "core/threads.h"

namespace ebclr::core {
namespace {

TEST(Nearest, FindsTypingErrors) {
  const std::vector<std::string> keys = {"method.lambda", "method.tau", "sampler.steps", "data.source"};
  EXPECT_EQ(nearest("method.lamda", keys), "method.lambda");
  EXPECT_EQ(nearest("tau", keys), "method.tau");
  EXPECT_EQ(nearest("sampler.step", keys), "sampler.steps");
  EXPECT_EQ(nearest("zzzzzzzzzzzzzzzzzz", keys), std::nullopt);
}

TEST(HumanSeconds, ReadsWell) {
  EXPECT_EQ(human_seconds(12.3), "12 s");
  EXPECT_EQ(human_seconds(200), "3 min 20 s");
  EXPECT_EQ(human_seconds(7500), "2 h 05 min");
}

TEST(Threads, AtLeastOneCore) {
  EXPECT_GE(available_cores(), 1);
}

TEST(Threads, AnAffinityMaskCounts) {
  cpu_set_t before, one;
  CPU_ZERO(&before);
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  sched_setaffinity(0, sizeof before, &before);
}

TEST(OneLine, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(one_line("a b\\c\xc3\xa4.png"), "a b\\c\xc3\xa4.png") << "ordinary names are left alone";
  EXPECT_EQ(one_line("a\nb"), "a\\nb");
  EXPECT_EQ(one_line("\x1b[2J\\\x7f"), "\\x1b[2J\\\\\\x7f");
}

}  // namespace
}  // namespace ebclr::core
