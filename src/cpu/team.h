#pragma once
// A team of threads that runs one function together.
//
// The release build borrows the OpenMP threads that torch uses as well: a pool of our own would share the
// cores with torch's workers, which spin for milliseconds after each of torch's parallel loops. Thread
// sanitizer cannot see into libgomp, so that build (EBCLR_CPU_STD_THREADS) starts std::threads instead; the
// barrier is the same in both.

#include <atomic>
#include <functional>
#include <mutex>

namespace ebclr::cpu {

/// Where threads wait for each other; reusable. A waiting thread spins for a while, then sleeps. How long
/// depends on how it went before: beside a busy program, whose time slices are milliseconds, spinning only
/// keeps the core from those who would use it.
class Barrier {
 public:
  explicit Barrier(int size);
  /// Returns when all `size` threads have called it.
  void wait();
  /// Nanoseconds that threads have slept here, added up.
  long slept() const { return slept_.load(std::memory_order_relaxed); }

 private:
  int size_;
  std::atomic<long> slept_{0};
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
  int asked = 1;               // threads that the caller wanted; what is summed in parts goes by them
  Barrier* barrier = nullptr;  // null for a team of one, as are the next two
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

/// How many threads a team is worth. Beside a busy program one thread of a team keeps losing its core, and
/// the others wait for it at every barrier: then a thread fewer is faster, and leaves the neighbour alone.
/// From time to time one more is tried again. What a team computes must not depend on its size, only on how
/// many were asked for.
class Crowding {
 public:
  /// What a run of a team took, in seconds.
  struct Shift {
    double wall = 0;  ///< from its begin to its end
    double cpu = 0;   ///< processor time of all threads
    double lost = 0;  ///< time that threads wanted to run and did not, added up
  };
  /// Threads to take instead of `threads`; `now` in seconds on any clock that goes forward.
  int use(int threads, double now);
  /// Learns from a run with as many threads as `use` said.
  void learn(int used, const Shift& shift, double now);

 private:
  static constexpr double kWindow = 0.1, kShortestPause = 0.5, kLongestPause = 8;
  std::mutex mutex_;
  Shift window_;
  int fewer_ = 0;
  double pause_ = kShortestPause, retry_at_ = 0;
};

/// What the teams of this process have learnt.
Crowding& crowding();

enum class TeamSize { kMayShrink, kFixed };

/// Runs `body` on `threads` threads, the caller being one of them, and returns when all are done.
/// `body` must not throw. Inside another parallel region, and on a crowded machine unless the size is fixed,
/// the team may be smaller than asked for.
void run_team(int threads, const std::function<void(const Team&)>& body,
              TeamSize size = TeamSize::kMayShrink);

/// From now on idle OpenMP threads of this process sleep soon instead of spinning for milliseconds, whoever
/// works with them (docs/decisions/0013). Does nothing where the user has set OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT, or where `threads` leave many of the processors free.
void let_idle_threads_sleep(int threads);

}  // namespace ebclr::cpu
