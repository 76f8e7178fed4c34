#pragma once
// Checkpoints: <run>/checkpoints/step-00001200-r0.safetensors holds every tensor and, in its metadata, the
// small state as JSON and a checksum; the replay buffer lies beside it in buffer-00001200-r0.safetensors and
// is kept for the newest ones only. docs/decisions/0004 says why.

#include <torch/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/safetensors.h"

namespace ebclr::run {

/// Where a run stands.
struct Position {
  int64_t step = 0;          ///< steps done
  int64_t epoch = 0;         ///< epochs done
  int64_t batch = 0;         ///< batches done of the current epoch
  double seconds = 0;        ///< training clock; kept beside the checkpoints, see write_checkpoint
  double forward_units = 0;  ///< per image: encoder forwards spent so far, times images
  int64_t rollbacks = 0;     ///< how often the guard stepped in
};

/// One checkpoint in memory.
struct Snapshot {
  Position position;
  nlohmann::json small;       ///< method, guard, schedule state
  core::SafeTensors tensors;  ///< "method/...", "optimizer/..."
  core::SafeTensors buffer;   ///< "chains", "counts"; empty when there is none
};

/// Which checkpoint of a run; later ones compare greater.
struct CheckpointId {
  int64_t rollbacks = 0, step = 0;
  auto operator<=>(const CheckpointId&) const = default;
};

/// A checkpoint on disk.
struct CheckpointFile {
  std::filesystem::path path = {};
  std::filesystem::path buffer = {};  ///< empty when it is not there
  int64_t step = 0, rollbacks = 0;
  CheckpointId id() const { return {rollbacks, step}; }
};

/// Deep copy of what is needed to write while training goes on.
Snapshot clone(const Snapshot& snapshot);

/// Writes buffer first, then the checkpoint that refers to it; a reader never sees half of it. The clock is
/// no part of it but a line of clock.jsonl in the same folder: the same training gives the same bytes.
void write_checkpoint(const std::filesystem::path& folder, const Snapshot& snapshot);
/// All checkpoints of a folder, oldest first.
std::vector<CheckpointFile> list_checkpoints(const std::filesystem::path& folder);
/// Reads and verifies; with_buffer demands the buffer if the run has one.
Snapshot read_checkpoint(const CheckpointFile& file, bool with_buffer);
/// The newest one that can be read; damaged ones are skipped and named in `notes`. nullopt: there is none.
std::optional<Snapshot> read_newest(const std::filesystem::path& folder, std::vector<std::string>& notes);
/// Position alone; reads the header only.
Position read_position(const CheckpointFile& file);

/// What may go and what must stay.
struct PruneOptions {
  CheckpointId newest = {};  ///< the one just written; newer files could not be read and do not count
  int64_t keep_last = 2;     ///< so many of the newest stay whole
  int64_t keep_every = 0;    ///< epochs that are multiples of this stay, without their buffer; 0: none
  std::vector<CheckpointId> protect = {};  ///< these stay whole
};
/// Removes old files, and what killed processes left.
void prune_checkpoints(const std::filesystem::path& folder, const PruneOptions& options);

}  // namespace ebclr::run
