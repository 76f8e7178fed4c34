#pragma once
// What the golden energies and chains are computed with, whatever encoder backend is attached.

#include <torch/torch.h>

#include <string>
#include <utility>

#include "ebm/sampler.h"
#include "golden.h"
#include "methods/contrastive_energy.h"
#include "nn/encoder.h"

namespace ebclr::testing {

/// The network of the golden energies.
struct GoldenNet {
  nn::Encoder encoder{{.width = 8}, 0};
  nn::Head head{{.in = 64, .hidden = 64, .out = 16}, 0};
  GoldenNet() { fill_golden(head, fill_golden(encoder, 0)); }
  methods::ContrastiveEnergy energy(const std::string& references) {
    torch::NoGradGuard guard;
    return {encoder, head, head.forward(encoder.forward(golden_float(references))), 0.1};
  }
};

/// Noise as it was drawn for the golden chains.
class GivenNoise : public ebm::NoiseSource {
 public:
  explicit GivenNoise(torch::Tensor all) : all_(std::move(all)) {}
  torch::Tensor draw(const torch::Tensor&) override { return all_[step_++].clone(); }

 private:
  torch::Tensor all_;  // [steps, N, C, H, W]
  int64_t step_ = 0;
};

}  // namespace ebclr::testing
