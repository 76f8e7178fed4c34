#pragma once
// The replay buffer: chains that outlive a step, each with a count of how often it was visited.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "dist/group.h"

namespace ebclr::ebm {

/// Gives n proposal samples [n, C, H, W] in [-1, 1], drawn from q0 with the generator.
class ProposalSource {
 public:
  using All = std::function<torch::Tensor(int64_t n, core::Rng& rng)>;
  /// Rows [begin, end) of n; the generator moves on as if all had been made.
  using Part = std::function<torch::Tensor(int64_t n, core::Rng& rng, int64_t begin, int64_t end)>;

  ProposalSource() = default;
  /// A source that can make all of them only.
  template <class F>
  requires std::is_invocable_r_v<torch::Tensor, F&, int64_t, core::Rng&> ProposalSource(F all)
      : part_([all = All(std::move(all))](int64_t n, core::Rng& rng, int64_t begin, int64_t end) {
          return all(n, rng).slice(0, begin, end);
        }) {}
  /// A source that saves the work for the others.
  ProposalSource(Part part) : part_(std::move(part)) {}

  torch::Tensor operator()(int64_t n, core::Rng& rng) const { return part_(n, rng, 0, n); }
  torch::Tensor part(int64_t n, core::Rng& rng, int64_t begin, int64_t end) const {
    return part_(n, rng, begin, end);
  }

 private:
  Part part_;
};

/// Images [n, C, H, W] of uniform noise in [-1, 1); shape is {C, H, W}.
torch::Tensor uniform_images(int64_t n, const std::vector<int64_t>& shape, core::Rng& rng);
/// Uniform noise as a source of proposals.
ProposalSource uniform_proposals(std::vector<int64_t> shape);

struct BufferOptions {
  int64_t size = 50000;  ///< |B|
  double rho = 0.2;      ///< probability that a picked chain starts anew
  bool half = false;     ///< keep chains as float16
};

/// N chains picked for one step; this rank moves its share n of them.
struct PickedChains {
  torch::Tensor slots;   ///< int64 [N], no slot twice
  torch::Tensor fresh;   ///< bool [N], re-initialised just now
  torch::Tensor chains;  ///< float [n, C, H, W], where they start
  torch::Tensor counts;  ///< int64 [n], visits before this one; 0 for fresh chains
};

/// Every rank holds its share of the slots. What is picked, proposed and counted is drawn alike by all of
/// them, so that the chains do not depend on how many there are.
class ReplayBuffer {
 public:
  /// Filled with proposals; count 0 everywhere.
  ReplayBuffer(const BufferOptions& options, torch::IntArrayRef image_shape, const ProposalSource& propose,
               core::Rng& rng, std::shared_ptr<dist::Group> ranks = dist::solo());

  /// n chains without repetition, each re-initialised with probability rho. All ranks call it together.
  PickedChains pick(int64_t n, const ProposalSource& propose, core::Rng& rng) const;
  /// Puts the moved chains of this rank's share back into their slots, wherever these are, and counts the
  /// visits. All ranks call it together.
  void put(const PickedChains& picked, const torch::Tensor& chains);

  /// |B|, over all ranks.
  int64_t size() const { return options_.size; }
  /// Slots [first, second) that this rank holds.
  std::pair<int64_t, int64_t> slots() const { return ranks_->share(size()); }
  /// Bytes held here.
  int64_t bytes() const { return static_cast<int64_t>(chains_.nbytes() + counts_.nbytes()); }
  /// Visits per chain, the mean over all ranks, which call it together.
  double mean_visits() const;
  /// Storage for checkpoints: this rank's [n, C, H, W] float32 or float16, and int64 [n].
  torch::Tensor& chains() { return chains_; }
  torch::Tensor& counts() { return counts_; }
  const torch::Tensor& chains() const { return chains_; }
  const torch::Tensor& counts() const { return counts_; }

  /// Starts every chain anew (after divergence).
  void reset(const ProposalSource& propose, core::Rng& rng);

 private:
  /// The kept ones of this rank's share of the picked chains, brought here from where they are held.
  void fetch(PickedChains& picked) const;

  BufferOptions options_;
  std::shared_ptr<dist::Group> ranks_;
  torch::Tensor chains_, counts_;  // of the slots held here
};

}  // namespace ebclr::ebm
