#pragma once

#include <filesystem>
#include <future>

#include "run/checkpoint.h"

namespace ebclr::train {

/// Writes checkpoints on a thread of its own while training goes on, at most one at a time; large ones at
/// once, because their copy would take as much memory again.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path folder, int64_t keep_last, int64_t keep_every);
  ~CheckpointWriter();

  /// Waits for an earlier write, copies the state and starts to write it (a large one is written before this
  /// returns). An earlier failure is thrown here.
  void submit(const run::Snapshot& snapshot);
  /// Until nothing is under way; throws what went wrong.
  void wait();
  /// Throws at once if a finished write went wrong.
  void poll();

 private:
  std::filesystem::path folder_;
  int64_t keep_last_, keep_every_;
  std::future<void> pending_;
};

}  // namespace ebclr::train
