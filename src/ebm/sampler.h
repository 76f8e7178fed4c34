#pragma once
// Langevin samplers. They know an energy and a source of noise, nothing of networks or data.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ebclr::ebm {

/// Energies [N] and a gradient shaped like what it was taken for.
struct EnergyGrad {
  torch::Tensor energy, grad;
};

class NoiseSource;

/// How exactly the gradients along a chain are computed. kBfloat16: an energy that has a quicker way may
/// round what it multiplies to bfloat16.
enum class Precision { kFloat, kBfloat16 };

/// Steps v <- v - step_size * clamp(dE/dv) + sigma * noise.
struct LangevinPlan {
  int64_t steps = 10;
  int64_t inner = 0;  ///< YOPO: so many steps with one costate, `steps` times; 0 without a cut
  double step_size = 0.05, clamp = 1;  ///< clamp 0 switches it off
  torch::Tensor sigma;                 ///< [N]
  Precision precision = Precision::kFloat;
};

/// End of the chains and what was seen on the way.
struct SampleResult {
  torch::Tensor chains;                 ///< like v
  std::vector<torch::Tensor> energies;  ///< E at the start of each step, [N] each
};

/// An unnormalised density exp(-E(v)) over batches v [N, ...].
class Energy {
 public:
  virtual ~Energy() = default;
  /// E(v) and dE/dv; no other gradient is computed.
  virtual EnergyGrad evaluate(const torch::Tensor& v) = 0;
  /// All steps of a plan at once, for an energy that has a quicker way than `evaluate` step by step; nothing,
  /// with the noise untouched, if it has none, or not in that precision.
  virtual std::optional<SampleResult> run_langevin(const torch::Tensor& /*v*/, const LangevinPlan& /*plan*/,
                                                   NoiseSource& /*noise*/) {
    return std::nullopt;
  }
};

/// An energy that factors as E(v) = e(g(v)), so that dE/dh can be reused while v moves (YOPO).
class CutEnergy : public Energy {
 public:
  /// E(v) and the costate p = dE/dh at h = g(v).
  virtual EnergyGrad costate(const torch::Tensor& v) = 0;
  /// J_g(v)^T p, shaped like v.
  virtual torch::Tensor pull_back(const torch::Tensor& v, const torch::Tensor& p) = 0;
};

/// Numbers of several draws, one after the other: fills `out` with those from `first` on. May be called by
/// several threads at once.
using NoiseReader = std::function<void(int64_t first, std::span<float> out)>;

/// Standard normal noise, one tensor per call.
class NoiseSource {
 public:
  virtual ~NoiseSource() = default;
  virtual torch::Tensor draw(const torch::Tensor& like) = 0;
  /// The next `draws` tensors like `like` at once. Unless a source knows better they are drawn now.
  virtual NoiseReader draw_ahead(const torch::Tensor& like, int64_t draws);
};

/// Counter-based noise: what comes depends on the key and on how many numbers came before, not on threads.
class CounterNoise : public NoiseSource {
 public:
  explicit CounterNoise(uint64_t key, uint64_t counter = 0) : key_(key), counter_(counter) {}
  torch::Tensor draw(const torch::Tensor& like) override;
  NoiseReader draw_ahead(const torch::Tensor& like, int64_t draws) override;
  uint64_t key() const { return key_; }
  uint64_t counter() const { return counter_; }
  /// Passes over so many numbers; returns where they began.
  uint64_t skip(uint64_t count) { return std::exchange(counter_, counter_ + count); }

 private:
  uint64_t key_, counter_;
};

/// Counter noise of some rows of a larger batch: each gets what it would get there, whoever moves the others.
class RowsNoise : public NoiseSource {
 public:
  /// Rows from `first` on, of `total`.
  RowsNoise(CounterNoise& whole, int64_t first, int64_t total)
      : whole_(whole), first_(first), total_(total) {}
  torch::Tensor draw(const torch::Tensor& like) override;
  NoiseReader draw_ahead(const torch::Tensor& like, int64_t draws) override;

 private:
  CounterNoise& whole_;
  int64_t first_, total_;
};

enum class SamplerKind { kMsgld, kSgld, kYopo };

struct SamplerOptions {
  SamplerKind kind = SamplerKind::kMsgld;
  int64_t steps = 10;       ///< T
  double step_size = 0.05;  ///< alpha
  double clamp = 1.0;       ///< delta of the proximal form; 0 switches it off
  double decay = 3;         ///< K: visits after which the noise is at sigma_min
  double sigma_min = 0.01, sigma_max = 0.05;
  int64_t outer = 5, inner = 2;  ///< YOPO's M and N
  double inner_units = 0.2;      ///< cost of one of YOPO's inner steps beyond the first, in encoder forwards
  Precision precision = Precision::kFloat;  ///< with kBfloat16 a run throws Error where the energy cannot
};

/// Steps of a chain in one visit: T, or YOPO's M * N.
int64_t steps_per_visit(const SamplerOptions& options);

/// Noise scale of chains with these visit counts (int [N]) -> float [N].
torch::Tensor noise_scale(const torch::Tensor& counts, const SamplerOptions& options);

/// Moves chains v [N, ...] with visit counts [N] along the density.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual SampleResult run(Energy& energy, const torch::Tensor& v, const torch::Tensor& counts,
                           NoiseSource& noise) const = 0;
  /// Cost of one run in encoder forwards over the chains.
  virtual double forward_units() const = 0;
};

/// Cost of one run of such a sampler in encoder forwards over its chains (a full gradient costs two).
double sampler_units(const SamplerOptions& options);

/// The sampler of that kind; throws Error when the options make no sense.
std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options);

}  // namespace ebclr::ebm
