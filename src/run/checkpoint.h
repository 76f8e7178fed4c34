#pragma once
// Checkpoints: <run>/checkpoints/step-00001200-r0.safetensors holds every tensor and, in its metadata, the
// small state as JSON and a checksum; the replay buffer lies beside it in buffer-00001200-r0.safetensors and
// is kept for the newest ones only. docs/decisions/0004 says why. Several ranks write a part of the buffer
// each, buffer-00001200-r0-2of4.safetensors (docs/decisions/0030); the checkpoint, written last, names them
// all.

#include <torch/types.h>

#include <filesystem>
#include <limits>
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
  nlohmann::json small;        ///< method, guard, schedule state
  core::SafeTensors tensors;   ///< "method/...", "optimizer/..."
  core::SafeTensors buffer;    ///< "chains", "counts"; empty when there is none
  int64_t slots = 0;           ///< read: of the whole buffer, of which `buffer` may be a part
  nlohmann::json shards = {};  ///< to write: what write_shard() said on each rank, in place of `buffer`
};

/// Slots [first, end) of a replay buffer.
struct SlotRange {
  int64_t first = 0, end = std::numeric_limits<int64_t>::max();
};

/// Which checkpoint of a run; later ones compare greater.
struct CheckpointId {
  int64_t rollbacks = 0, step = 0;
  auto operator<=>(const CheckpointId&) const = default;
};

/// A checkpoint on disk.
struct CheckpointFile {
  std::filesystem::path path = {};
  std::vector<std::filesystem::path> buffer = {};  ///< files of its replay buffer; empty when it is not there
  int64_t step = 0, rollbacks = 0;
  std::optional<double> seconds = {};  ///< its training clock, where list_checkpoints() looked it up
  CheckpointId id() const { return {rollbacks, step}; }
};

/// Deep copy of what is needed to write while training goes on.
Snapshot clone(const Snapshot& snapshot);

/// Writes buffer first, then the checkpoint that refers to it; a reader never sees half of it. The clock is
/// no part of it but a line of clock.jsonl in the same folder: the same training gives the same bytes.
void write_checkpoint(const std::filesystem::path& folder, const Snapshot& snapshot);
/// Writes rank `rank` of `world`'s part of the buffer; returns what the checkpoint must know of it. Slots of
/// lower ranks come before it.
nlohmann::json write_shard(const std::filesystem::path& folder, const Snapshot& snapshot, int rank,
                           int world);
/// All checkpoints of a folder, oldest first.
std::vector<CheckpointFile> list_checkpoints(const std::filesystem::path& folder);
/// Reads and verifies; with_buffer demands the buffer if the run has one, or those of its slots.
Snapshot read_checkpoint(const CheckpointFile& file, bool with_buffer, const SlotRange& slots = {});
/// The whole replay buffer of a checkpoint alone.
core::SafeTensors read_buffer(const CheckpointFile& file);
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
