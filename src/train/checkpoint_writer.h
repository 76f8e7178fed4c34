#pragma once

#include <filesystem>
#include <future>

#include "run/checkpoint.h"

namespace ebclr::train {

/// Writes checkpoints on a thread of its own while training goes on; at most one is under way.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path folder, int64_t keep_last, int64_t keep_every);
  ~CheckpointWriter();

  /// Copies the state, waits for an earlier write and starts this one. An earlier failure is thrown here.
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
