#include "cli/watch_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/runtime.h"
#include "cli/say.h"
#include "core/error.h"
#include "core/text.h"
#include "web/server.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPort = 8090, kMorePorts = 50;

struct WatchArgs {
  std::vector<std::string> folders;
  std::string host = "127.0.0.1", token;
  int port = 0;
  bool open = false;
};

void open_browser(const std::string& address) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::fork() == 0) {
      const int null = ::open("/dev/null", O_RDWR);
      for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
      ::execlp("xdg-open", "xdg-open", address.c_str(), nullptr);
      ::_exit(127);
    }
    ::_exit(0);
  }
  if (pid > 0) ::waitpid(pid, nullptr, 0);
}

web::ServerOptions server_options(int port) {
  web::ServerOptions o;
  o.port = port > 0 ? port : kPort;
  o.more_ports = port > 0 ? 0 : kMorePorts;
  return o;
}

void watch_runs(const WatchArgs& a) {
  std::vector<fs::path> roots(a.folders.begin(), a.folders.end());
  size_t found = 0;
  bool truncated = false;
  for (const auto& r : roots) {
    std::error_code error;
    if (!fs::is_directory(r, error))
      core::usage_error(
          "watch", fmt::format("{}: no such folder; name a run, or a folder that holds runs", r.string()));
    found += watch::find_runs(r, truncated).size();
  }
  auto options = server_options(a.port);
  options.host = a.host;
  options.token = a.token == "auto" ? web::make_token() : a.token;
  watch::Site site(options, roots, core::join(a.folders, ", "));
  site.start();
  if (const auto caution = site.caution(); !caution.empty()) fmt::print(stderr, "warning: {}\n", caution);
  if (truncated)
    fmt::print(
        stderr,
        "warning: there is more below {} than is searched for runs, and some may be missing; name folders "
        "nearer to them\n",
        core::join(a.folders, ", "));
  fmt::print("watching {} in {}\nopen {}  (Ctrl-C ends)\n",
             found == 1 ? "1 run" : fmt::format("{} runs", found), core::join(a.folders, ", "),
             site.address());
  std::fflush(stdout);
  if (a.open) open_browser(site.address());
  catch_interrupts();
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

void add_watch_command(CLI::App& app) {
  auto a = std::make_shared<WatchArgs>();
  auto* command = app.add_subcommand("watch", "A live page of runs: curves, chains, health, logs");
  command->add_option("RUN", a->folders, "Run folders, or folders that hold runs")->required();
  command->add_option("--port", a->port, "Port (default: 8090, or the next one that is free)")
      ->check(CLI::Range(1, 65535));
  command->add_option("--host", a->host, "Address to listen on; others than this machine's own need --token")
      ->capture_default_str();
  command->add_option("--token", a->token, "What a visitor must know; `auto` makes one");
  command->add_flag("--open", a->open, "Open it in a browser");
  command->callback([a] { watch_runs(*a); });
}

void add_watch_options(CLI::App& command, WatchOptions& o) {
  command.add_flag("--watch", o.watch, "Serve a live page meanwhile, on this machine only");
  command.add_option("--watch-port", o.port, "Its port (default: 8090, or the next one that is free)")
      ->check(CLI::Range(1, 65535));
}

LivePage::LivePage(const WatchOptions& options, std::vector<fs::path> folders, const std::string& title) {
  if (!options.watch && options.port == 0) return;
  try {
    site_ = std::make_unique<watch::Site>(server_options(options.port), std::move(folders), title);
    site_->start();
    say("watch at {}\n", site_->address());
  } catch (const core::Error& e) {
    site_.reset();
    say("warning: {}; going on without a page\n", e.what());
  }
}

LivePage::~LivePage() {
  if (site_) site_->finish();
}

}  // namespace ebclr::cli
