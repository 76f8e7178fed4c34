#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <vector>

#include "dist/group.h"
#include "run/checkpoint.h"

namespace ebclr::train {

/// Writes checkpoints on a thread of its own while training goes on, at most one at a time; large ones at
/// once, because their copy would take as much memory again.
class CheckpointWriter {
 public:
  CheckpointWriter(std::filesystem::path folder, int64_t keep_last, int64_t keep_every,
                   std::shared_ptr<dist::Group> ranks = dist::solo());
  ~CheckpointWriter();

  /// Waits for an earlier write, copies the state and starts to write it (a large one is written before this
  /// returns). An earlier failure is thrown here. Several ranks call it together: each writes its part of the
  /// replay buffer before this returns, then rank 0 writes the checkpoint, which makes them valid together.
  /// `protect` names earlier checkpoints that must outlive the pruning.
  void submit(const run::Snapshot& snapshot, std::vector<run::CheckpointId> protect);
  /// Removes what is not to be kept (rank 0 does); `newest` is the state that the run stands at.
  void prune(const run::CheckpointId& newest, const std::vector<run::CheckpointId>& protect) const;
  /// Until nothing is under way; throws what went wrong.
  void wait();
  /// Throws at once if a finished write went wrong.
  void poll();

 private:
  /// This rank's part of the buffer; the snapshot that rank 0 writes after it.
  run::Snapshot write_parts(const run::Snapshot& snapshot) const;
  void write(const run::Snapshot& snapshot, const std::vector<run::CheckpointId>& protect) const;

  std::filesystem::path folder_;
  int64_t keep_last_, keep_every_;
  std::shared_ptr<dist::Group> ranks_;
  std::future<void> pending_;
};

}  // namespace ebclr::train
