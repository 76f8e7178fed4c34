#pragma once
// Batches of view pairs, made ahead of training by a pool of threads.

#include <functional>
#include <memory>

#include "data/views.h"

namespace ebclr::data {

/// One training batch.
struct Batch {
  torch::Tensor view1, view2;  ///< float [N, C, H, W] in [-1, 1]
  torch::Tensor indices;       ///< int64 [N]
  int64_t total = 0;           ///< images of the batch over all processes; N for one
  int64_t epoch = 0, number = 0;
};

struct LoaderOptions {
  int64_t batch_size = 128;  ///< images of a step, over all processes
  uint64_t seed = 0;
  int threads = 1;
  int ahead = 3;                ///< batches kept ready
  bool drop_last = true;        ///< the last, smaller batch of an epoch is left out
  int64_t rank = 0, world = 1;  ///< this process gives its share of every batch
  /// Called by a worker before it makes batch (epoch, number); what it throws reaches next().
  std::function<void(int64_t epoch, int64_t number)> on_batch = {};
};

/// Endless sequence of batches in a seeded order per epoch; can start at any (epoch, batch), which is how
/// resume finds its place. The sequence does not depend on threads or on where it was started.
class Loader {
 public:
  Loader(std::shared_ptr<const ImageSet> set, ViewOptions views, LoaderOptions options, int64_t epoch = 0,
         int64_t batch = 0);
  ~Loader();

  /// The next batch; waits for the pool if it is not ready.
  Batch next();
  /// Batches in one epoch.
  int64_t batches_per_epoch() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Order of an epoch: a seeded permutation, int64 [n].
torch::Tensor epoch_order(int64_t n, uint64_t seed, uint64_t epoch);

}  // namespace ebclr::data
