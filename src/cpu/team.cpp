#include "cpu/team.h"

#include <thread>
#include <vector>

#ifndef EBCLR_CPU_STD_THREADS
#include <omp.h>
#endif

namespace ebclr::cpu {
namespace {

/// Tells the processor that this is a loop that waits.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Barrier::wait() {
  const unsigned round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
    return;
  }
  // Shares are equal, so waits are short: spin some 50 microseconds. After that the other thread has probably
  // lost its core to another program; sleeping gives it ours, where yielding would queue behind everybody.
  for (int spins = 0; spins < 1000; ++spins) {
    if (round_.load(std::memory_order_acquire) != round) return;
    relax();
  }
  while (round_.load(std::memory_order_acquire) == round) round_.wait(round, std::memory_order_acquire);
}

#ifdef EBCLR_CPU_STD_THREADS

void run_team(int threads, const std::function<void(const Team&)>& body) {
  if (threads <= 1) return body(Team{});
  Barrier barrier(threads);
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (int id = 1; id < threads; ++id) {
    others.emplace_back([&, id] { body(Team{id, threads, &barrier}); });
  }
  body(Team{0, threads, &barrier});
  for (std::thread& other : others) other.join();
}

#else

void run_team(int threads, const std::function<void(const Team&)>& body) {
  if (threads <= 1 || omp_in_parallel()) return body(Team{});
  Barrier* barrier = nullptr;
#pragma omp parallel num_threads(threads)
  {
    const int size = omp_get_num_threads();
#pragma omp single
    barrier = size > 1 ? new Barrier(size) : nullptr;
    body(Team{omp_get_thread_num(), size, barrier});
  }
  delete barrier;
}

#endif

}  // namespace ebclr::cpu
