#include "core/text.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/threads.h"
#include "temp_dir.h"

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

TEST(Threads, QuotasOfAllGroupsAboveCount) {
  ebclr::testing::TempDir root;
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  const auto quota = [&](const std::string& groups) {
    std::istringstream in(groups);
    return cgroup_quota(in, root.path());
  };
  EXPECT_EQ(quota("0::/a/b\n"), 0) << "nothing is mounted";
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/a/b\n"), 0);
  write("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota("0::/a/b\n"), 1.5) << "the group above";
  write("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota("0::/a/b\n"), 0.5) << "the tightest";
  EXPECT_EQ(quota("0::/\n"), 0);
  // v1: quota and period in files of their own, below the controller's name.
  write("cpu/c/cpu.cfs_quota_us", "300000\n");
  write("cpu/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("4:cpu,cpuacct:/c\n2:memory:/\n"), 3);
  EXPECT_EQ(quota("4:cpuset:/c\n"), 0) << "another controller's group";
  write("cpu/c/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota("4:cpu:/c\n"), 0) << "no limit";
  for (const char* odd : {"", ":", "x", "0::", "1:cpu", "0::/a/b/c/d/e", "0::a"}) EXPECT_GE(quota(odd), 0);
}

TEST(Threads, OpenMPsLimitCounts) {
  ASSERT_EQ(setenv("OMP_NUM_THREADS", "1,2", 1), 0);
  EXPECT_EQ(available_cores(), 1);
  for (const char* odd : {"0", "-3", "x", "", "99999"}) {
    setenv("OMP_NUM_THREADS", odd, 1);
    EXPECT_GE(available_cores(), 1) << odd;
  }
  unsetenv("OMP_NUM_THREADS");
}

TEST(ShellWord, IsQuotedWhereItMustBe) {
  EXPECT_EQ(shell_word("runs/a-1_b.c,d=e:f@g%h+2"), "runs/a-1_b.c,d=e:f@g%h+2");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my photos"), "'my photos'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  for (const char* odd : {"$HOME", "a;b", "*", "~", "a\nb", "\\", "\"", "caf\xe9"})
    EXPECT_EQ(shell_word(odd), "'" + std::string(odd) + "'");
}

TEST(OneLine, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(one_line("a b\\c\xc3\xa4.png"), "a b\\c\xc3\xa4.png") << "ordinary names are left alone";
  EXPECT_EQ(one_line("a\nb"), "a\\nb");
  EXPECT_EQ(one_line("\x1b[2J\\\x7f"), "\\x1b[2J\\\\\\x7f");
  EXPECT_EQ(one_line("\xc2\x9b"
                     "2J\xc2\xa0\xc2"),
            "\\u009b2J\xc2\xa0\xc2")
      << "later control codes too";
}

}  // namespace
}  // namespace ebclr::core
