// Teams of threads: who works, who waits, and how many are worth it.

#include "cpu/team.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cpu/cost.h"

namespace ebclr::cpu {
namespace {

constexpr Crowding::Shift quiet(int threads) {
  return {.wall = 0.2, .cpu = 0.2 * threads, .lost = 0};
}
/// One of the threads has its core half of the time, and all wait for it.
constexpr Crowding::Shift beside_a_busy_loop(int threads) {
  return {.wall = 0.2, .cpu = 0.1 * threads, .lost = 0.1};
}

TEST(Crowding, AQuietMachineKeepsItsThreads) {
  Crowding c;
  for (double now = 0; now < 60; now += 0.2) {
    ASSERT_EQ(c.use(2, now), 2);
    c.learn(2, quiet(2), now);
  }
}

TEST(Crowding, ABusyLoopCostsAThreadUntilItEnds) {
  Crowding c;
  double now = 0;
  int with_all = 0, steps = 0;
  for (; now < 100; now += 0.2, ++steps) {
    const int used = c.use(2, now);
    if (used == 1) continue;
    ++with_all;
    c.learn(used, beside_a_busy_loop(used), now);
  }
  EXPECT_LT(with_all, steps / 20);  // it looks now and then
  EXPECT_GE(with_all, 5);
  const double over = now;
  while (c.use(2, now) < 2) now += 0.2;
  EXPECT_LE(now, over + 10);
  c.learn(2, quiet(2), now);
  for (double later = now; later < now + 20; later += 0.2) EXPECT_EQ(c.use(2, later), 2);
}

TEST(Crowding, OneCoreOfManyCostsOneThread) {
  Crowding c;
  int fewest = 8;
  for (double now = 0; now < 60; now += 0.2) {
    const int used = c.use(8, now);
    fewest = std::min(fewest, used);
    c.learn(used, used == 8 ? beside_a_busy_loop(8) : quiet(used), now);
  }
  EXPECT_EQ(fewest, 7);
}

TEST(Crowding, ThreadsThatHaveNothingToDoAreNoSignOfNeighbours) {
  Crowding c;
  for (double now = 0; now < 10; now += 0.2) {
    ASSERT_EQ(c.use(4, now), 4);
    c.learn(4, {.wall = 0.2, .cpu = 0.3, .lost = 0.001}, now);  // asleep at barriers, not kept from running
  }
}

TEST(Crowding, AMomentDecidesNothing) {
  Crowding c;
  c.learn(2, {.wall = 0.01, .cpu = 0.01, .lost = 0.01}, 0);
  EXPECT_EQ(c.use(2, 0), 2);
}

TEST(Team, EveryItemIsDealtOnceWhateverTheSize) {
  for (const int threads : {1, 2, 3}) {
    std::vector<std::atomic<int>> taken(100);
    std::atomic<int> asked{0};
    run_team(
        threads,
        [&](const Team& team) {
          if (team.id == 0) asked = team.asked;
          team.deal(60, [&](long item) { ++taken[item]; });
          team.sync();
          team.deal(40, [&](long item) { ++taken[60 + item]; });
        },
        TeamSize::kFixed);
    EXPECT_EQ(asked, threads);
    for (const auto& count : taken) EXPECT_EQ(count, 1);
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(Team, OneThatMayNotShrinkTeachesNothing) {
  const int before = crowding().use(64, now());
  for (int i = 0; i < 3; ++i) {
    run_team(
        2, [](const Team&) { std::this_thread::sleep_for(std::chrono::milliseconds(120)); },
        TeamSize::kFixed);  // threads that lose their cores look like this
  }
  EXPECT_GE(crowding().use(64, now()), before);
}

TEST(TeamDeathTest, AForkedProcessEndsAlthoughThePoolIsNotInIt) {
  let_idle_threads_sleep(2);
  EXPECT_EXIT(
      {
        ::alarm(20);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Team, ThePeakOfTheMachineIsThatOfAllThreads) {
  static std::atomic<int> chains{0};
  Kernels kernels{};
  kernels.fma_chain = [](long steps) {
    if (steps > 0) ++chains;
    return 1.0;
  };
  crowding().learn(2, {.wall = 1, .cpu = 0.5, .lost = 1}, now());
  fma_peak(kernels, 2);
  EXPECT_EQ(chains, 10 * 2);
}

}  // namespace
}  // namespace ebclr::cpu
