#include "study/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "study/perform.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;

fs::path failure_file(const RunSpec& spec) {
  return fs::path(spec.folder.string() + ".failed");
}

// The program's own error line, else the last thing that was said.
std::string failure_in(const fs::path& log, int status) {
  std::ifstream in(log);
  std::string last, own;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    last = line;
    if (line.starts_with("ebclr: ")) own = line.substr(7);
  }
  if (!own.empty()) return own;
  if (WIFSIGNALED(status))
    return fmt::format("ended by signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)),
                       WTERMSIG(status) == SIGKILL ? "; out of memory?" : "");
  return last.empty() ? fmt::format("exit code {}", WEXITSTATUS(status)) : last;
}

/// A running worker.
struct Worker {
  pid_t pid = -1;
  int out = -1;  // read end of its standard output
  size_t run = 0;
  fs::path log;
  std::string text;  // an unfinished line
};

Worker start(const std::vector<std::string>& words, size_t run, const fs::path& log) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const int err = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (err < 0)
    core::run_error(kComponent, fmt::format("{}: cannot be written: {}", log.string(), std::strerror(errno)));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    const int why = errno;
    ::close(err);
    core::run_error(kComponent, fmt::format("no pipe to a worker could be made: {}", std::strerror(why)));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  const int why = errno;
  if (pid == 0) {
    // A worker saves and ends when its parent is gone, however that went.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);  // Ctrl-C reaches the parent alone, which asks once
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);  // connections of a live page are not the worker's
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  ::close(err);
  if (pid < 0) {
    ::close(ends[0]);
    core::run_error(kComponent, fmt::format("no worker could be started: {}", std::strerror(why)));
  }
  return {pid, ends[0], run, log, ""};
}

void take_lines(Worker& w, RunStatus& status) {
  for (size_t end; (end = w.text.find('\n')) != std::string::npos;) {
    const auto j = core::parse_json(std::string_view(w.text).substr(0, end));
    w.text.erase(0, end + 1);
    if (!j.is_object()) continue;
    status.units = j.value("units", status.units);
    status.doing = j.value("doing", status.doing);
  }
}

// The failure that was remembered of a run; empty without.
std::string remembered(const RunSpec& spec) {
  std::error_code ec;
  if (!fs::exists(failure_file(spec), ec)) return "";
  try {
    const auto text = core::read_text(failure_file(spec), kComponent);
    return text.substr(0, text.find('\n'));
  } catch (const core::Error&) {  // a pipe in its place, or nothing that may be read
    return "";
  }
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// The runs of a plan that wait, among processes that may take the same ones.
class Line {
 public:
  explicit Line(const Plan& plan) : status(plan.runs.size()), plan_(plan), old_failures_(plan.runs.size()) {
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const auto& spec = plan.runs[i];
      if (complete(spec, read_findings(spec))) {
        finish(i);
      } else if (!spec.blocked.empty()) {
        status[i] = {.state = RunState::kBlocked, .failure = spec.blocked};
      } else {
        old_failures_[i] = failed_at(spec);
        waiting_.insert(i);
      }
    }
  }

  bool empty() const { return waiting_.empty(); }

  /// The first run that nobody is at, out of the line. What others have finished meanwhile leaves it too.
  std::optional<size_t> next() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const size_t i = *it++;  // which may leave the line
      try {
        if (take(i)) return i;
      } catch (const core::Error& e) {  // its lock cannot be asked
        failed(i, e.what());
      }
    }
    return std::nullopt;
  }

  /// A run could not be started, or its worker failed. A failure that cannot be written down, on a full disk
  /// say, is known by its status alone, and the others go on.
  void failed(size_t i, const std::string& why) {
    waiting_.erase(i);
    status[i].state = RunState::kFailed;
    status[i].failure = why;
    const auto& spec = plan_.runs[i];
    std::error_code ec;
    fs::create_directories(spec.folder.parent_path(), ec);  // it may have failed before its first file
    try {
      core::write_atomically(failure_file(spec), why + "\n", kComponent);
    } catch (const core::Error&) {
    }
  }

  /// A worker is gone.
  void ended(const Worker& w, int code) {
    auto& s = status[w.run];
    std::error_code ec;
    const int answer = WIFEXITED(code) ? WEXITSTATUS(code) : -1;
    if (answer == 0) {
      finish(w.run);
      fs::remove(w.log, ec);
    } else if (answer == kElsewhereExit) {
      s = {.state = RunState::kElsewhere};
      waiting_.insert(w.run);
      fs::remove(w.log, ec);
    } else if (answer == static_cast<int>(core::ExitCode::kInterrupted)) {
      s.state = RunState::kStopped;
    } else {
      failed(w.run, failure_in(w.log, code));
    }
  }

  /// Nothing more is begun.
  void stop() {
    for (const size_t i : waiting_) status[i].state = RunState::kStopped;
  }

  std::vector<RunStatus> status;

 private:
  // Takes a run out of the line; is it ours to do? One that others are at stays.
  bool take(size_t i) {
    const auto& spec = plan_.runs[i];
    if (is_taken(spec)) {
      status[i].state = RunState::kElsewhere;
      return false;
    }
    waiting_.erase(i);
    if (complete(spec, read_findings(spec))) {
      finish(i);
      status[i].foreign = true;
      return false;
    }
    if (const auto when = failed_at(spec); when && when != old_failures_[i]) {
      // It failed in other hands since we began: once is enough.
      status[i] = {.state = RunState::kFailed, .failure = remembered(spec), .foreign = true};
      return false;
    }
    status[i].state = RunState::kWaiting;
    std::error_code ec;
    fs::remove(failure_file(spec), ec);
    return true;
  }

  // When the run was last seen to fail, by the file's own clock.
  static std::optional<fs::file_time_type> failed_at(const RunSpec& spec) {
    std::error_code ec;
    const auto when = fs::last_write_time(failure_file(spec), ec);
    return ec ? std::nullopt : std::optional(when);
  }
  void finish(size_t i) {
    const auto& spec = plan_.runs[i];
    status[i] = {.state = RunState::kDone, .units = spec.forward_units + spec.judging_units};
    std::error_code ec;
    fs::remove(failure_file(spec), ec);
  }

  const Plan& plan_;
  std::set<size_t> waiting_;
  std::vector<std::optional<fs::file_time_type>> old_failures_;
};

}  // namespace

std::string progress_line(double units, const std::string& doing) {
  const nlohmann::json j = {{"units", units}, {"doing", doing}};
  // The name of a set need not be UTF-8.
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<std::string> remembered_failures(const Plan& plan) {
  std::vector<std::string> out;
  for (const auto& spec : plan.runs) {
    out.push_back(remembered(spec));
  }
  return out;
}

std::vector<RunStatus> run_plan(const Plan& plan, const WorkerOptions& options,
                                const std::atomic<bool>& stop) {
  Line line(plan);
  auto& status = line.status;
  std::error_code ec;
  fs::create_directories(options.scratch, ec);
  if (ec)
    core::run_error(kComponent,
                    fmt::format("{}: cannot be created: {}", options.scratch.string(), ec.message()));
  std::vector<Worker> workers;
  bool asked = false;
  while (!workers.empty() || (!line.empty() && !stop)) {
    while (!stop && workers.size() < static_cast<size_t>(std::max(1, options.jobs))) {
      const auto next = line.next();
      if (!next) break;
      const auto& spec = plan.runs[*next];
      // Other studies, also on other hosts, have workers of their own there.
      const auto stem = fmt::format("{}.{}.{}", spec.folder.filename().string(), host_name(), ::getpid());
      const auto file = options.scratch / (stem + ".json");
      // Paths may hold any bytes; JSON holds text.
      const auto text = to_json(spec).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
      try {
        core::write_atomically(file, text + "\n", kComponent);
        workers.push_back(start(options.command(file), *next, options.scratch / (stem + ".log")));
        status[*next].state = RunState::kRunning;
      } catch (const core::Error& e) {
        line.failed(*next, e.what());
        fs::remove(file, ec);
      }
    }
    if (stop && !asked) {
      for (const auto& w : workers) ::kill(w.pid, SIGTERM);
      asked = true;
    }
    std::vector<pollfd> polls;
    for (const auto& w : workers) polls.push_back({w.out, POLLIN, 0});
    ::poll(polls.data(), polls.size(), 500);
    for (size_t k = workers.size(); k-- > 0;) {
      auto& w = workers[k];
      if (!(polls[k].revents & (POLLIN | POLLHUP))) continue;
      char buffer[4096];
      const auto n = ::read(w.out, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n > 0) {
        w.text.append(buffer, static_cast<size_t>(n));
        take_lines(w, status[w.run]);
        continue;
      }
      int code = 0;
      while (::waitpid(w.pid, &code, 0) < 0 && errno == EINTR) {
      }
      ::close(w.out);
      fs::remove(fs::path(w.log).replace_extension(".json"), ec);
      line.ended(w, code);
      workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (options.watch) options.watch(status);
  }
  line.stop();
  return status;
}

}  // namespace ebclr::study
