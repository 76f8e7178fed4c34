#include "dist/group.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <thread>

namespace ebclr::dist {
namespace {

/// A port that nobody listens at now.
int free_port(int* keep = nullptr) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof a;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &length);
  if (keep != nullptr) {
    ::listen(fd, 1);
    *keep = fd;
  } else {
    ::close(fd);
  }
  return ntohs(a.sin_port);
}

struct Ended {
  std::string text;  // stdout and stderr
  int code = -1;     // exit code; 128 + signal
};

/// Processes dist_worker MODE, one per rank.
class Ranks {
 public:
  Ranks(const std::string& mode, int world, int started, int port, bool agent_store = false) {
    for (int rank = 0; rank < started; ++rank) {
      int ends[2];
      EXPECT_EQ(::pipe(ends), 0);
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::dup2(ends[1], 1);
        ::dup2(ends[1], 2);
        ::close(ends[0]);
        ::setenv("RANK", std::to_string(rank).c_str(), 1);
        ::setenv("WORLD_SIZE", std::to_string(world).c_str(), 1);
        ::setenv("MASTER_ADDR", "127.0.0.1", 1);
        ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
        ::setenv("OMP_NUM_THREADS", "1", 1);
        if (agent_store) ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
        ::execl(EBCLR_DIST_WORKER, "dist_worker", mode.c_str(), nullptr);
        ::_exit(127);
      }
      ::close(ends[1]);
      pids_.push_back(pid);
      pipes_.push_back(ends[0]);
    }
  }
  ~Ranks() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }

  Ended wait(int rank) {
    Ended e;
    char block[4096];
    for (ssize_t n = 0; (n = ::read(pipes_[static_cast<size_t>(rank)], block, sizeof block)) > 0;)
      e.text.append(block, static_cast<size_t>(n));
    int status = 0;
    ::waitpid(pids_[static_cast<size_t>(rank)], &status, 0);
    e.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return e;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
};

TEST(Group, OneProcessIsAGroup) {
  const auto group = solo();
  auto t = torch::ones({2});
  group->sum(t);
  EXPECT_EQ(t.sum().item<double>(), 2);
  EXPECT_TRUE(group->any(true));
  EXPECT_FALSE(group->any(false));
  group->require_same("configuration", "x");
  EXPECT_TRUE(gather_for_loss(*group, t, 2).is_same(t));
}

TEST(Group, SharesCoverAllRowsOnce) {
  for (const int64_t count : {1, 2, 7, 64}) {
    EXPECT_EQ(solo()->share(count), (std::pair<int64_t, int64_t>{0, count}));
  }
}

class Exchange : public testing::TestWithParam<int> {};

TEST_P(Exchange, RowsGradientsAndTextsAreThoseOfOneProcess) {
  const int world = GetParam();
  Ranks ranks("exchange", world, world, free_port());
  std::string texts = "rank 0";
  for (int r = 1; r < world; ++r) texts += fmt::format(",rank {}", r);
  for (int r = 0; r < world; ++r) {
    const auto e = ranks.wait(r);
    EXPECT_EQ(e.code, 0) << e.text;
    EXPECT_EQ(e.text,
              fmt::format("gathered true gradient true broadcast 7 any true false sum {} zero 0 texts {}\n",
                          world * (world + 1) / 2, texts));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Exchange, testing::Values(2, 3, 4));

TEST(Group, ADifferenceIsNamedOnEveryRank) {
  Ranks ranks("differ", 2, 2, free_port());
  for (int r = 0; r < 2; ++r) {
    const auto e = ranks.wait(r);
    EXPECT_EQ(e.code, 2);
    EXPECT_NE(e.text.find("rank 1 has another configuration than rank 0: 'b: 3' there, 'b: 2' on rank 0"),
              std::string::npos)
        << e.text;
  }
}

TEST(Group, AKilledRankIsNamed) {
  Ranks ranks("die", 3, 3, free_port());
  EXPECT_EQ(ranks.wait(1).code, 128 + SIGKILL);
  for (const int r : {0, 2}) {
    const auto e = ranks.wait(r);
    EXPECT_EQ(e.code, 1) << e.text;
    EXPECT_NE(e.text.find("rank 1 has not been heard of"), std::string::npos) << e.text;
  }
}

TEST(Group, AStoppedRankIsNamed) {
  Ranks ranks("hang", 2, 2, free_port());
  const auto e = ranks.wait(0);
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.text.find("rank 1 has not been heard of"), std::string::npos) << e.text;
}

// The store answers as if nothing were amiss.
TEST(Group, AStoppedFirstRankIsNamedWhereAnAgentKeepsTheStore) {
  const int port = free_port();
  Ranks agent("keep", 1, 1, port);
  Ranks ranks("hang0", 2, 2, port, /*agent_store=*/true);
  const auto e = ranks.wait(1);
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.text.find("rank 0 has not been heard of"), std::string::npos) << e.text;
}

TEST(Group, WhyARankEndedIsSaidByAll) {
  Ranks ranks("abandon", 2, 2, free_port());
  const auto e = ranks.wait(0);
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.text.find("rank 1 ended: the disk is full"), std::string::npos) << e.text;
  EXPECT_EQ(ranks.wait(1).code, 1);
}

TEST(Group, ABusyRankIsWaitedFor) {
  Ranks ranks("late", 2, 2, free_port());
  EXPECT_EQ(ranks.wait(0).text, "2\n");
  EXPECT_EQ(ranks.wait(1).text, "2\n");
}

TEST(Group, ATakenPortIsSaid) {
  int fd = -1;
  const int port = free_port(&fd);
  Ranks ranks("exchange", 2, 1, port);
  const auto e = ranks.wait(0);
  ::close(fd);
  EXPECT_EQ(e.code, 1);
  EXPECT_NE(e.text.find("choose another MASTER_PORT"), std::string::npos) << e.text;
}

TEST(Group, StrangersAtThePortDoNoHarm) {
  const int port = free_port();
  Ranks ranks("late", 2, 2, port);
  // While the ranks meet and wait: garbage, and connections that say nothing.
  std::vector<int> fds;
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{.sin_family = AF_INET,
                  .sin_port = htons(static_cast<uint16_t>(port)),
                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                  .sin_zero = {}};
    if (::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 && i % 2 == 0) {
      const std::string garbage(static_cast<size_t>(1 + 37 * i), static_cast<char>(200 + i % 50));
      (void)!::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    }
    fds.push_back(fd);
  }
  EXPECT_EQ(ranks.wait(0).text, "2\n");
  EXPECT_EQ(ranks.wait(1).text, "2\n");
  for (const int fd : fds) ::close(fd);
}

}  // namespace
}  // namespace ebclr::dist
