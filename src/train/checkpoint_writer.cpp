#include "train/checkpoint_writer.h"

#include <torch/torch.h>

#include <chrono>
#include <memory>

namespace ebclr::train {

CheckpointWriter::CheckpointWriter(std::filesystem::path folder, int64_t keep_last, int64_t keep_every)
    : folder_(std::move(folder)), keep_last_(keep_last), keep_every_(keep_every) {}

CheckpointWriter::~CheckpointWriter() {
  if (pending_.valid()) pending_.wait();
}

void CheckpointWriter::submit(const run::Snapshot& snapshot) {
  wait();
  auto copy = std::make_shared<run::Snapshot>(run::clone(snapshot));
  pending_ = std::async(std::launch::async, [this, copy] {
    run::write_checkpoint(folder_, *copy);
    run::prune_checkpoints(folder_, keep_last_, keep_every_);
  });
}

void CheckpointWriter::wait() {
  if (pending_.valid()) pending_.get();
}

void CheckpointWriter::poll() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    pending_.get();
}

}  // namespace ebclr::train
