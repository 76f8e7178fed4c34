#pragma once
// The chains of a method with a generative term: where they start, who moves them, what is kept of them.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "core/rng.h"
#include "ebm/replay_buffer.h"
#include "ebm/sampler.h"
#include "methods/method.h"

namespace ebclr::methods {

/// A step's cost per image in encoder forwards of one view: two views forward (2) and backward (4); for each
/// chain sampling, a forward (1) and a backward (2).
double units_with_chains(const EbclrOptions& o, int64_t batch);

class Chains {
 public:
  /// With lambda 0 there are none. Throws Error of `component` where the ranks cannot share so few.
  Chains(const EbclrOptions& o, uint64_t seed, const MethodContext& context, std::string_view component);

  bool any() const { return buffer_ != nullptr; }
  ebm::ReplayBuffer* buffer() { return buffer_.get(); }

  /// What the network makes of the chains of all ranks.
  struct Seen {
    torch::Tensor outputs;    ///< [C, D]
    double out_of_range = 0;  ///< share of the pixels
    double age = 0;           ///< mean number of visits
  };
  /// Picks the chains of a step over `images` images and moves this rank's part along the energy; `outputs`
  /// then shows them to the network.
  Seen move(ebm::Energy& energy, int64_t images, torch::Device device,
            const std::function<torch::Tensor(const torch::Tensor&)>& outputs);
  /// Puts what was moved last back into the buffer.
  void keep();

  /// Other settings of the sampler from the next step on.
  void set_sampler(const ebm::SamplerOptions& o) { sampler_ = make_sampler_(o); }
  /// Anew from other random numbers.
  void reseed(uint64_t seed);
  /// Positions of the random numbers; the buffer is saved by whoever saves large things.
  nlohmann::json state() const;
  void load(const nlohmann::json& state);

 private:
  double share_;  // sampler.chains
  std::shared_ptr<dist::Group> ranks_;
  ebm::ProposalSource propose_;
  SamplerMaker make_sampler_;
  core::Rng rng_;
  ebm::CounterNoise noise_;
  std::unique_ptr<ebm::Sampler> sampler_;
  std::unique_ptr<ebm::ReplayBuffer> buffer_;
  ebm::PickedChains picked_;
  torch::Tensor samples_;
};

}  // namespace ebclr::methods
