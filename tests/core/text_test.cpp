#include "core/text.h"

#include <gtest/gtest.h>

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

TEST(OneLine, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(one_line("a b\\c\xc3\xa4.png"), "a b\\c\xc3\xa4.png") << "ordinary names are left alone";
  EXPECT_EQ(one_line("a\nb"), "a\\nb");
  EXPECT_EQ(one_line("\x1b[2J\\\x7f"), "\\x1b[2J\\\\\\x7f");
}

}  // namespace
}  // namespace ebclr::core
