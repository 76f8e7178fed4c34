#pragma once
// The replay buffer: chains that outlive a step, each with a count of how often it was visited.

#include <torch/types.h>

#include <functional>
#include <vector>

#include "core/rng.h"

namespace ebclr::ebm {

/// Gives n proposal samples [n, C, H, W] in [-1, 1], drawn from q0 with the generator.
using ProposalSource = std::function<torch::Tensor(int64_t n, core::Rng& rng)>;

/// Images [n, C, H, W] of uniform noise in [-1, 1); shape is {C, H, W}.
torch::Tensor uniform_images(int64_t n, const std::vector<int64_t>& shape, core::Rng& rng);
/// Uniform noise as a source of proposals.
ProposalSource uniform_proposals(std::vector<int64_t> shape);

struct BufferOptions {
  int64_t size = 50000;  ///< |B|
  double rho = 0.2;      ///< probability that a picked chain starts anew
  bool half = false;     ///< keep chains as float16
};

/// Chains picked for one step.
struct PickedChains {
  torch::Tensor slots;   ///< int64 [N], no slot twice
  torch::Tensor chains;  ///< float [N, C, H, W], where they start
  torch::Tensor counts;  ///< int64 [N], visits before this one; 0 for fresh chains
  torch::Tensor fresh;   ///< bool [N], re-initialised just now
};

class ReplayBuffer {
 public:
  /// Filled with proposals; count 0 everywhere.
  ReplayBuffer(const BufferOptions& options, torch::IntArrayRef image_shape, const ProposalSource& propose,
               core::Rng& rng);

  /// n chains without repetition, each re-initialised with probability rho.
  PickedChains pick(int64_t n, const ProposalSource& propose, core::Rng& rng) const;
  /// Puts the moved chains back into their slots and counts the visit.
  void put(const PickedChains& picked, const torch::Tensor& chains);

  int64_t size() const { return chains_.size(0); }
  /// Bytes held.
  int64_t bytes() const { return static_cast<int64_t>(chains_.nbytes() + counts_.nbytes()); }
  /// Storage for checkpoints: [|B|, C, H, W] float32 or float16, and int64 [|B|].
  torch::Tensor& chains() { return chains_; }
  torch::Tensor& counts() { return counts_; }
  const torch::Tensor& chains() const { return chains_; }
  const torch::Tensor& counts() const { return counts_; }

  /// Starts every chain anew (after divergence).
  void reset(const ProposalSource& propose, core::Rng& rng);

 private:
  BufferOptions options_;
  torch::Tensor chains_, counts_;
};

}  // namespace ebclr::ebm
