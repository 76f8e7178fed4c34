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

/// Where threads wait for each other; reusable.
class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}
  /// Returns when all `size` threads have called it.
  void wait();

 private:
  int size_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> round_{0};
};

/// One thread's view of its team.
struct Team {
  int id = 0;
  int size = 1;
  Barrier* barrier = nullptr;  // null for a team of one

  /// Waits for the whole team.
  [[gnu::always_inline]] void sync() const {
    if (barrier != nullptr) barrier->wait();
  }
  /// First item of this thread's share of `count` items; the share ends where the next thread's begins.
  [[gnu::always_inline]] long begin(long count) const { return count * id / size; }
  [[gnu::always_inline]] long end(long count) const { return count * (id + 1) / size; }
};

/// Runs `body` on `threads` threads, the caller being one of them, and returns when all are done.
/// `body` must not throw. Inside another parallel region the team may be smaller than asked for.
void run_team(int threads, const std::function<void(const Team&)>& body);

}  // namespace ebclr::cpu
