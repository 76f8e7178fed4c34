#include "cpu/team.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

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

}  // namespace

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
  sleepers_.fetch_add(1);
  while (round_.load() == round) round_.wait(round);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

#ifdef EBCLR_CPU_STD_THREADS

void run_team(int threads, const std::function<void(const Team&)>& body) {
  if (threads <= 1) return body(Team{});
  Barrier barrier(threads);
  std::atomic<long> counter{0};
  const auto run = [&](int id) {
    long dealt = 0;
    body(Team{id, threads, &barrier, &counter, &dealt});
  };
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (int id = 1; id < threads; ++id) others.emplace_back(run, id);
  run(0);
  for (std::thread& other : others) other.join();
}

void let_idle_threads_sleep(int /*threads*/) {}

#else

void run_team(int threads, const std::function<void(const Team&)>& body) {
  if (threads <= 1 || omp_in_parallel()) return body(Team{});
  Barrier* barrier = nullptr;
  std::atomic<long> counter{0};
#pragma omp parallel num_threads(threads)
  {
    const int size = omp_get_num_threads();
#pragma omp single
    barrier = size > 1 ? new Barrier(size) : nullptr;
    long dealt = 0;
    if (size > 1) {
      body(Team{omp_get_thread_num(), size, barrier, &counter, &dealt});
    } else {
      body(Team{});
    }
  }
  delete barrier;
}

namespace {

/// A second OpenMP pool whose threads sleep. With more threads than processors under its care libgomp lets
/// idle ones spin 100 turns instead of 300,000, in all pools.
class SleepingPool {
 public:
  explicit SleepingPool(int threads) : owner_([this, threads] { sleep(threads); }) {}
  ~SleepingPool() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_one();
    owner_.join();
  }
  SleepingPool(const SleepingPool&) = delete;
  SleepingPool& operator=(const SleepingPool&) = delete;

 private:
  void sleep(int threads) {
    int started = 0;
#pragma omp parallel num_threads(threads) reduction(+ : started)
    started += 1;
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return over_; });
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread owner_;
};

}  // namespace

void let_idle_threads_sleep(int threads) {
  constexpr int kMostIdle = 64;  // sleeping threads that we would start
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  const int needed = omp_get_num_procs() - threads + 2;
  if (threads < 2 || needed < 2 || needed > kMostIdle) return;
  static const SleepingPool pool(needed);
}

#endif

}  // namespace ebclr::cpu
