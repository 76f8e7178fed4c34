#include "bench/ranks_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/json.h"

namespace ebclr::bench {
namespace {

namespace fs = std::filesystem;
constexpr const char* kRanksComponent = "bench.ranks";
// What launchers set; a child must see what it is told and nothing else.
constexpr const char* kLaunchNames[] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR", "MASTER_PORT"};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// A port that nobody listens at now.
uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  socklen_t length = sizeof a;
  const bool ok = ::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 &&
                  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &length) == 0;
  ::close(fd);
  if (!ok) core::run_error(kRanksComponent, "no free port was found");
  return ntohs(a.sin_port);
}

pid_t start_child(const std::vector<std::string>& words, const fs::path& log) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  // Asked before there are two of us: what a child throws unwinds this program a second time.
  if (out < 0)
    core::run_error(kRanksComponent,
                    fmt::format("{}: cannot be written ({})", log.string(), std::strerror(errno)));
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int why = errno;
    ::close(out);
    core::run_error(kRanksComponent,
                    fmt::format("no child process could be started ({})", std::strerror(why)));
  }
  if (pid == 0) {
    for (const char* name : kLaunchNames) ::unsetenv(name);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out);
  return pid;
}

std::string last_line(const fs::path& log) {
  std::ifstream in(log);
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) last = line;
  return last;
}

/// Waits for all; throws what the first that failed said, when all have ended.
void wait_for(const std::vector<pid_t>& children, const std::vector<fs::path>& logs) {
  std::string failure;
  for (size_t i = 0; i < children.size(); ++i) {
    int code = 0;
    while (::waitpid(children[i], &code, 0) < 0 && errno == EINTR) {
    }
    if (code != 0 && failure.empty()) failure = fmt::format("rank {} failed: {}", i, last_line(logs[i]));
  }
  if (!failure.empty()) core::run_error(kRanksComponent, failure);
}

/// What a training wrote of its steps, the first left out.
struct Steps {
  std::vector<double> seconds, exchange_seconds, exchange_bytes, exchanges;
  void read(const fs::path& file, int64_t batch) {
    std::ifstream in(file);
    bool first = true;
    for (std::string line; std::getline(in, line);) {
      const auto j = core::parse_json(line);
      if (!j.is_object() || std::exchange(first, false)) continue;
      seconds.push_back(static_cast<double>(batch) / j.value("images_per_second", 1e-9));
      exchange_seconds.push_back(j.value("exchange_seconds", 0.0));
      exchange_bytes.push_back(j.value("exchange_bytes", 0.0));
      exchanges.push_back(j.value("exchanges", 0.0));
    }
  }
  Timing timing() const { return {*std::min_element(seconds.begin(), seconds.end()), median_of(seconds)}; }
};

/// One training by `ranks` processes; 1: alone with as many threads.
void train_once(const RanksOptions& o, int ranks, const fs::path& folder, Steps& into) {
  const auto command = o.command(folder, ranks == 1 ? o.ranks : 1, o.steps + 1);
  const uint16_t port = free_port();
  std::vector<pid_t> children;
  std::vector<fs::path> logs;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> words;
    if (ranks > 1) {
      std::istringstream in(o.through);
      for (std::string word; in >> word;) {
        if (const auto at = word.find("{}"); at != std::string::npos)
          word.replace(at, 2, std::to_string(rank));
        words.push_back(word);
      }
      words.insert(words.end(), {"env", fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
                                 "MASTER_ADDR=" + o.master, fmt::format("MASTER_PORT={}", port)});
      if (o.through.empty())
        words.insert(words.end(),
                     {fmt::format("LOCAL_RANK={}", rank), fmt::format("LOCAL_WORLD_SIZE={}", ranks)});
    }
    words.insert(words.end(), command.begin(), command.end());
    logs.push_back(fmt::format("{}.rank{}.log", folder.string(), rank));
    children.push_back(start_child(words, logs.back()));
  }
  wait_for(children, logs);
  into.read(folder / "metrics.jsonl", o.batch);
  std::error_code ec;
  fs::remove_all(folder, ec);
}

}  // namespace

RanksBench bench_ranks(const RanksOptions& o) {
  Steps threads, ranks;
  for (int round = 0; round < o.rounds; ++round) {
    train_once(o, 1, o.scratch / fmt::format("threads{}", round), threads);
    train_once(o, o.ranks, o.scratch / fmt::format("ranks{}", round), ranks);
  }
  if (threads.seconds.empty() || ranks.seconds.empty())
    core::run_error(kRanksComponent, "the trainings left no steps to read");
  return {.options = o,
          .threads = threads.timing(),
          .ranks = ranks.timing(),
          .exchange_seconds = median_of(ranks.exchange_seconds),
          .exchange_bytes = median_of(ranks.exchange_bytes),
          .exchanges = median_of(ranks.exchanges)};
}

nlohmann::json to_json(const RanksBench& r) {
  const auto& o = r.options;
  const auto rate = [&](const Timing& t) { return static_cast<double>(o.batch) / t.median; };
  return {{"bench", "ranks"},
          {"ranks", o.ranks},
          {"batch", o.batch},
          {"rounds", o.rounds},
          {"steps", o.steps},
          {"images_per_second", {{"threads", rate(r.threads)}, {"ranks", rate(r.ranks)}}},
          {"threads_seconds", r.threads.median},
          {"threads_seconds_best", r.threads.min},
          {"ranks_seconds", r.ranks.median},
          {"ranks_seconds_best", r.ranks.min},
          {"efficiency", r.efficiency()},
          {"efficiency_best", r.threads.min / r.ranks.min},
          {"exchange_seconds_per_step", r.exchange_seconds},
          {"exchange_share", r.exchange_share()},
          {"exchanges_per_step", r.exchanges},
          {"bytes_per_step", r.exchange_bytes},
          {"least_bytes_per_step", o.least_bytes}};
}

}  // namespace ebclr::bench
