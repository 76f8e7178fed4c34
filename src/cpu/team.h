#pragma once
// A team of threads that runs one function together.
//
// The release build borrows the OpenMP threads that torch uses as well: a pool of our own would share the
// cores with torch's workers, which spin for milliseconds after each of torch's parallel loops. Thread
// sanitizer cannot see into libgomp, so that build (EBCLR_CPU_STD_THREADS) starts std::threads instead; the
// barrier is the same in both.

#include <atomic>
#include <functional>

namespace ebclr::cpu {

/// Where threads wait for each other; reusable. A waiting thread spins for a while, then sleeps. How long
/// depends on how it went before: beside a busy program, whose time slices are milliseconds, spinning only
/// keeps the core from those who would use it.
class Barrier {
 public:
  explicit Barrier(int size);
  /// Returns when all `size` threads have called it.
  void wait();

 private:
  int size_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> round_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<int> patience_;  // turns of the spinning loop
  static constexpr int kMostPatience = 4096, kLeastPatience = 64;
};

/// One thread's view of its team.
struct Team {
  int id = 0;
  int size = 1;
  Barrier* barrier = nullptr;            // null for a team of one, as are the next two
  std::atomic<long>* counter = nullptr;  // items that were taken, over all deals
  long* dealt = nullptr;                 // this thread's: where the current deal begins

  /// Waits for the whole team.
  [[gnu::always_inline]] void sync() const {
    if (barrier != nullptr) barrier->wait();
  }
  /// First item of this thread's share of `count` items; the share ends where the next thread's begins.
  [[gnu::always_inline]] long begin(long count) const { return count * id / size; }
  [[gnu::always_inline]] long end(long count) const { return count * (id + 1) / size; }

  /// Hands out items 0..count-1: whoever is free takes the next and calls body(item). Called by the whole
  /// team; between two deals there must be a sync.
  template <class Body>
  void deal(long count, const Body& body) const {
    if (counter == nullptr) {
      for (long item = 0; item < count; ++item) body(item);
      return;
    }
    for (;;) {
      const long item = counter->fetch_add(1, std::memory_order_relaxed) - *dealt;
      if (item >= count) break;
      body(item);
    }
    *dealt += count + size;  // every thread has asked once in vain
  }
};

/// Runs `body` on `threads` threads, the caller being one of them, and returns when all are done.
/// `body` must not throw. Inside another parallel region the team may be smaller than asked for.
void run_team(int threads, const std::function<void(const Team&)>& body);

/// From now on idle OpenMP threads of this process sleep soon instead of spinning for milliseconds, whoever
/// works with them (docs/decisions/0013). Does nothing where the user has set OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT, or where `threads` leave many of the processors free.
void let_idle_threads_sleep(int threads);

}  // namespace ebclr::cpu
