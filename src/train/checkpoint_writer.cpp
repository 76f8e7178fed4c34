#include "train/checkpoint_writer.h"

#include <torch/torch.h>

#include <chrono>
#include <memory>

namespace ebclr::train {

CheckpointWriter::CheckpointWriter(std::filesystem::path folder, int64_t keep_last, int64_t keep_every,
                                   std::shared_ptr<dist::Group> ranks)
    : folder_(std::move(folder)), keep_last_(keep_last), keep_every_(keep_every), ranks_(std::move(ranks)) {}

CheckpointWriter::~CheckpointWriter() {
  if (pending_.valid()) pending_.wait();
}

namespace {

/// A copy of 50,000 colour chains would be 614 MB, held for as long as the disk takes; writing it in place
/// costs training some 3 s per epoch of an hour or more.
constexpr size_t kCopyAtMost = size_t{256} << 20;

size_t bytes_of(const core::SafeTensors& content) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : content.tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace

void CheckpointWriter::write(const run::Snapshot& snapshot,
                             const std::vector<run::CheckpointId>& protect) const {
  run::write_checkpoint(folder_, snapshot);
  prune({snapshot.position.rollbacks, snapshot.position.step}, protect);
}

void CheckpointWriter::prune(const run::CheckpointId& newest,
                             const std::vector<run::CheckpointId>& protect) const {
  if (ranks_->rank() != 0) return;
  run::prune_checkpoints(
      folder_, {.newest = newest, .keep_last = keep_last_, .keep_every = keep_every_, .protect = protect});
}

run::Snapshot CheckpointWriter::write_parts(const run::Snapshot& whole) const {
  run::Snapshot s = whole;
  ranks_->meet();  // rank 0 tidies up no more, and takes no part for a stray one
  if (s.buffer.tensors.empty()) return s;
  const auto mine = run::write_shard(folder_, s, ranks_->rank(), ranks_->world());
  s.shards = nlohmann::json::array();
  for (const auto& text : ranks_->gather_text(mine.dump())) s.shards.push_back(nlohmann::json::parse(text));
  s.buffer = {};
  return s;
}

void CheckpointWriter::submit(const run::Snapshot& state, std::vector<run::CheckpointId> protect) {
  wait();
  const auto snapshot = ranks_->alone() ? state : write_parts(state);
  if (ranks_->rank() != 0) return;
  if (bytes_of(snapshot.tensors) + bytes_of(snapshot.buffer) > kCopyAtMost) {
    write(snapshot, protect);
    return;
  }
  auto copy = std::make_shared<run::Snapshot>(run::clone(snapshot));
  pending_ = std::async(std::launch::async, [this, copy, keep = std::move(protect)] { write(*copy, keep); });
}

void CheckpointWriter::wait() {
  if (pending_.valid()) pending_.get();
}

void CheckpointWriter::poll() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    pending_.get();
}

}  // namespace ebclr::train
