#include "cli/runtime.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <ctime>

#include "core/error.h"
#include "core/threads.h"
#include "dist/launch.h"

namespace ebclr::cli {
namespace {

std::atomic<bool> stop_requested{false}, asked_before{false};
std::atomic<time_t> stop_time{0};
std::atomic<int> same_signal{0};  // seconds within which a second one is the first one passed on

time_t clock_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void on_signal(int signal) {
  stop_requested = true;
  if (signal == SIGHUP) return;  // of a closed terminal the shell tells, and the system once more
  if (!asked_before.exchange(true)) {
    stop_time = clock_seconds();
  } else if (same_signal == 0 || clock_seconds() - stop_time > same_signal) {
    ::_exit(130);  // the second time means it
  }
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// `local_rank` has its own device among those of the host.
torch::Device parse_device(const std::string& name, int local_rank) {
  if (name == "cpu") return torch::kCPU;
  if (name == "auto")
    return torch::cuda::is_available()
               ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(
                                                 local_rank % static_cast<int>(torch::cuda::device_count())))
               : torch::Device(torch::kCPU);
  if (name == "cuda" || name.starts_with("cuda:")) {
    int index = 0;
    if (name.size() > 5) {
      const auto [end, ec] = std::from_chars(name.data() + 5, name.data() + name.size(), index);
      if (ec != std::errc() || end != name.data() + name.size() || index < 0)
        core::usage_error("device", fmt::format("'{}': expected cuda or cuda:N", name));
    }
    if (!torch::cuda::is_available())
      core::usage_error(
          "device",
          fmt::format(
              "'{}' asked for, but this libtorch sees no CUDA device; use --device cpu, or build with "
              "-DCMAKE_PREFIX_PATH=<an official CUDA libtorch>",
              name));
    if (index >= static_cast<int>(torch::cuda::device_count()))
      core::usage_error("device", fmt::format("'{}': there are {} CUDA devices, numbered from 0", name,
                                              torch::cuda::device_count()));
    return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
  }
  core::usage_error("device", fmt::format("'{}' is unknown; choose auto, cpu, cuda or cuda:N", name));
}

}  // namespace

void add_runtime_options(CLI::App& command, RuntimeOptions& o) {
  command.add_option("--device", o.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command
      .add_option("--engine", o.engine,
                  "Encoder on a CPU: auto, native or torch; amx, avx512, avx2: native with these")
      ->capture_default_str();
  command
      .add_option("--threads", o.threads,
                  "Threads (default: the cores that this process may use, divided by the ranks of the host)")
      ->check(CLI::Range(0, 4096));
}

Runtime apply(const RuntimeOptions& o) {
  Runtime r;
  const auto launch = dist::find_launch(dist::process_environment());
  r.threads = core::available_cores();
  if (launch)
    r.threads = dist::threads_of(*launch, r.threads, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  if (o.threads > 0) r.threads = o.threads;
  at::set_num_threads(r.threads);
  r.device = parse_device(o.device, launch ? launch->local_rank : 0);
  r.engine = engine::parse_engine(o.engine);
  r.engine.threads = r.threads;
  return r;
}

const std::atomic<bool>& interrupted() {
  return stop_requested;
}

void catch_interrupts(int same) {
  same_signal = same;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

void protect_work(int same) {
  catch_interrupts(same);
  if (!is_ignored(SIGHUP)) std::signal(SIGHUP, on_signal);  // nohup has it ignored
  // A handler, and not SIG_IGN, which programs that are started from here would inherit.
  if (!is_ignored(SIGPIPE)) std::signal(SIGPIPE, [](int) {});
}

}  // namespace ebclr::cli
