#include "cpu/team.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <thread>
#include <vector>

#include <unistd.h>

#ifndef EBCLR_CPU_STD_THREADS
#include <omp.h>
#endif

namespace ebclr::cpu {
namespace {

/// Tells the processor that this thread only waits.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1'000'000'000L + t.tv_nsec;
}

/// A team at work, and what it costs.
class Watched {
 public:
  Watched(int size, int asked, const std::function<void(const Team&)>& body)
      : size_(size), asked_(asked), body_(body), barrier_(size), begin_(nanoseconds(CLOCK_MONOTONIC)) {}
  /// The part of thread `id`.
  void run(int id) {
    const long wall = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    long dealt = 0;
    body_(Team{id, size_, asked_, &barrier_, &counter_, &dealt});
    const long used = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    cpu_.fetch_add(used, std::memory_order_relaxed);
    off_.fetch_add(nanoseconds(CLOCK_MONOTONIC) - wall - used, std::memory_order_relaxed);
  }
  /// When all parts have ended.
  void learn() const {
    const long now = nanoseconds(CLOCK_MONOTONIC);
    const double lost = static_cast<double>(off_.load() - barrier_.slept()) * 1e-9;
    crowding().learn(size_, {(now - begin_) * 1e-9, cpu_.load() * 1e-9, lost}, now * 1e-9);
  }

 private:
  int size_, asked_;
  const std::function<void(const Team&)>& body_;
  Barrier barrier_;
  std::atomic<long> counter_{0};
  long begin_;
  std::atomic<long> cpu_{0}, off_{0};
};

int worth(int threads, TeamSize size) {
  return threads <= 1 || size == TeamSize::kFixed
             ? threads
             : crowding().use(threads, nanoseconds(CLOCK_MONOTONIC) * 1e-9);
}

}  // namespace

int Crowding::use(int threads, double now) {
  const std::lock_guard lock(mutex_);
  if (fewer_ > 0 && now >= retry_at_) {
    --fewer_;
    retry_at_ = now + pause_;
    window_ = {};
  }
  return std::max(1, threads - fewer_);
}

void Crowding::learn(int used, const Shift& shift, double now) {
  const std::lock_guard lock(mutex_);
  window_.wall += shift.wall;
  window_.cpu += shift.cpu;
  window_.lost += shift.lost;
  if (window_.wall < kWindow) return;
  // Less than one thread fewer would have had to itself, and because others had the cores, not because there
  // was nothing to do.
  const bool crowded = window_.cpu < (used - 0.9) * window_.wall && window_.lost > 0.2 * window_.wall;
  window_ = {};
  if (!crowded) {
    pause_ = kShortestPause;
    return;
  }
  ++fewer_;
  retry_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

Crowding& crowding() {
  static Crowding all;
  return all;
}

Barrier::Barrier(int size) : size_(size), patience_(kMostPatience) {}

void Barrier::wait() {
  const unsigned round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1);
    if (sleepers_.load() > 0) round_.notify_all();
    return;
  }
  const int patience = patience_.load(std::memory_order_relaxed);
  for (int spins = 0; spins < patience; ++spins) {
    if (round_.load(std::memory_order_acquire) != round) {
      if (patience < kMostPatience) patience_.store(patience * 2, std::memory_order_relaxed);
      return;
    }
    relax();
  }
  // The other thread has probably lost its core to another program; sleeping gives it ours, where yielding
  // would queue behind everybody.
  if (patience > kLeastPatience) patience_.store(patience / 2, std::memory_order_relaxed);
  const long asleep = nanoseconds(CLOCK_MONOTONIC);
  sleepers_.fetch_add(1);
  while (round_.load() == round) round_.wait(round);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  slept_.fetch_add(nanoseconds(CLOCK_MONOTONIC) - asleep, std::memory_order_relaxed);
}

#ifdef EBCLR_CPU_STD_THREADS

void run_team(int threads, const std::function<void(const Team&)>& body, TeamSize team_size) {
  const int size = worth(threads, team_size);
  if (size <= 1) return body(Team{.asked = threads});
  Watched team(size, threads, body);
  std::vector<std::thread> others;
  others.reserve(size - 1);
  for (int id = 1; id < size; ++id) others.emplace_back([&team, id] { team.run(id); });
  team.run(0);
  for (std::thread& other : others) other.join();
  if (team_size == TeamSize::kMayShrink) team.learn();
}

void let_idle_threads_sleep(int /*threads*/) {}

#else

void run_team(int threads, const std::function<void(const Team&)>& body, TeamSize team_size) {
  const int wanted = omp_in_parallel() ? 1 : worth(threads, team_size);
  if (wanted <= 1) return body(Team{.asked = threads});
  std::optional<Watched> team;
  // All of them, whoever works: libgomp ends and starts threads whenever a region's size changes.
#pragma omp parallel num_threads(threads)
  {
#pragma omp single
    if (const int size = std::min(omp_get_num_threads(), wanted); size > 1) team.emplace(size, threads, body);
    const int id = omp_get_thread_num();
    if (!team && id == 0) body(Team{.asked = threads});
    if (team && id < wanted) team->run(id);
  }
  // A team that may not shrink would go on finding the same crowd, and count more threads out than there are.
  if (team && team_size == TeamSize::kMayShrink) team->learn();
}

namespace {

/// A second OpenMP pool whose threads sleep until the process ends. With more threads than processors under
/// its care libgomp lets idle ones spin 100 turns instead of 300,000, in all pools. Nobody waits for its
/// owner: a process that was forked does not have that thread, and would wait for ever when it exits.
void start_sleeping_pool(int threads) {
  std::thread([threads] {
    int started = 0;
#pragma omp parallel num_threads(threads) reduction(+ : started)
    started += 1;
    for (;;) ::pause();
  }).detach();
}

}  // namespace

void let_idle_threads_sleep(int threads) {
  constexpr int kMostIdle = 64;  // sleeping threads that we would start
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  const int needed = omp_get_num_procs() - threads + 2;
  if (threads < 2 || needed < 2 || needed > kMostIdle) return;
  static std::once_flag once;
  std::call_once(once, start_sleeping_pool, needed);
}

#endif

}  // namespace ebclr::cpu
