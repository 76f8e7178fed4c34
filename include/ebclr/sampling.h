#pragma once
// Energies and samplers. Derive from Energy to sample a density of your own with ours; derive from Sampler to
// move chains your own way, on any energy, in Model::sample or in training.

#include <ebclr/api.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace ebclr {

/// An unnormalised density exp(-E(v)) over batches v [N, ...].
class EBCLR_API Energy {
 public:
  virtual ~Energy();

  /// Energies [N] and dE/dv, shaped like v.
  struct Value {
    torch::Tensor energy, gradient;
  };
  virtual Value evaluate(const torch::Tensor& v) = 0;
};

/// Standard normal noise. What it gives depends on the seed and on how much was drawn before, not on threads.
class EBCLR_API Noise {
 public:
  explicit Noise(uint64_t seed);
  virtual ~Noise();
  /// The next numbers, shaped like `like` and on its device.
  virtual torch::Tensor draw(const torch::Tensor& like);

 protected:
  Noise();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where chains ended and what was seen on the way.
struct SamplerResult {
  torch::Tensor chains;                 ///< shaped like the starts
  std::vector<torch::Tensor> energies;  ///< [N] each, before each step; may be left empty
};

/// Moves chains along a density.
class EBCLR_API Sampler {
 public:
  virtual ~Sampler();
  /// `start` [N, ...]; `visits` int64 [N] says how often each chain was moved before (0: it is fresh). All
  /// randomness comes from `noise`, or a run does not resume with the same bytes.
  virtual SamplerResult run(Energy& energy, const torch::Tensor& start, const torch::Tensor& visits,
                            Noise& noise) = 0;
  /// Cost of one run in forward passes of the encoder (a gradient costs two); for the books only.
  virtual double forward_units() const { return 0; }
};

struct LangevinOptions {
  int64_t steps = 10;
  double step_size = 0.05;                    ///< alpha
  double clamp = 1.0;                         ///< bound of each gradient component; 0: none
  double sigma_min = 0.01, sigma_max = 0.05;  ///< noise of old and of fresh chains; equal: plain SGLD
  double decay = 3;                           ///< visits after which the noise is sigma_min
};

/// The paper's sampler, multi-stage Langevin dynamics: v <- v - alpha clamp(dE/dv) + sigma noise.
EBCLR_API std::unique_ptr<Sampler> make_langevin(const LangevinOptions& options = {});

}  // namespace ebclr
