#pragma once
// The engine against libtorch: single convolutions, features, the sampler, and whole training steps.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/timing.h"

namespace ebclr::bench {

/// What is measured. Images are noise: the time does not depend on them.
struct BenchOptions {
  std::string method = "ebclr";  ///< of bench step
  std::string label = {};        ///< how a table calls it; empty for the method's name
  bool batch_norm = false;
  int64_t batch = 64, width = 64, size = 32, channels = 3;
  std::string stem = "cifar";  ///< cifar, imagenet or patch
  int64_t sgld_steps = 10;     ///< T
  int64_t yopo_inner = 0;      ///< of bench sampler: YOPO's N, M being T / N; 0 for Langevin steps
  int cut = 0;                 ///< YOPO's
  double chains = 0;           ///< of EBCLR's step: as sampler.chains
  bool channels_last = false;  ///< libtorch's weights in that order, which makes its convolutions use it
  int warmup = 1, repeats = 3;
  int threads = 0;                ///< 0: as many as torch uses
  std::string instructions = {};  ///< of the kernels: "amx", "avx512" or "avx2"; empty for the best in float
};

/// One measurement of the whole encoder, in seconds per call over a batch.
struct EngineBench {
  std::string what;  ///< step, sampler or embed
  BenchOptions options;
  Timing released = {};  ///< libtorch as the released code does it; as lean where there is no difference
  Timing lean = {};      ///< libtorch without needless gradients
  Timing native = {};
  double error = 0;         ///< of native features against torch's in double, relative L2
  double peak_flops = 0;    ///< fused multiply-adds of all threads
  double direct_flops = 0;  ///< per image, of the convolutions as defined
  double floor_flops = 0;   ///< per image, that Winograd leaves

  double ms_per_image(const Timing& t) const { return t.min * 1e3 / static_cast<double>(options.batch); }
  double ratio_released() const { return released.min / native.min; }
  double ratio_lean() const { return lean.min / native.min; }
  /// Work as defined over what the machine could do in the time; above 1 is Winograd's gain.
  double peak_share() const {
    return direct_flops * static_cast<double>(options.batch) / (native.min * peak_flops);
  }
  /// Time of the remaining products at peak over the time taken.
  double floor_share() const {
    return floor_flops * static_cast<double>(options.batch) / (native.min * peak_flops);
  }
};

/// A whole training step of a method: views forward, sampling where it has any, loss, backward, Adam.
EngineBench bench_step(const BenchOptions& options);
/// The T gradients of the energy that a step's chains take.
EngineBench bench_sampler(const BenchOptions& options);

/// Energies of chains, always computed in float.
struct EnergyMoments {
  double mean = 0, sd = 0;
};
/// Where chains in float and in bfloat16 come to from the same starts with the same noise.
struct ChainEnergies {
  int64_t steps = 0;
  EnergyMoments single = {}, coarse = {};
  EnergyMoments other = {};  ///< in float again with other noise: the yardstick
  double ks = 0;             ///< Kolmogorov-Smirnov distance between `single` and `coarse`
  double ks_other = 0;       ///< between `single` and `other`
};
struct EnergyOptions {
  int64_t chains = 0;   ///< 0: time only
  int64_t updates = 0;  ///< of the network by EBCLR, on made-up smooth images, before anything is measured
  std::vector<int64_t> steps = {10, 100};
};
/// The sampler's chains in float and in bfloat16, in turns.
struct PrecisionBench {
  BenchOptions options;
  Timing single = {}, coarse = {};
  std::vector<ChainEnergies> chains = {};
};
PrecisionBench bench_precision(const BenchOptions& options, const EnergyOptions& energies);
nlohmann::json to_json(const std::vector<PrecisionBench>& results);
/// Largest distance between the distribution functions of two samples.
double kolmogorov_smirnov(std::vector<double> a, std::vector<double> b);

/// Features without gradients.
EngineBench bench_embed(const BenchOptions& options);

/// The rivals of bench_step, "native" first, each running one training step per call.
std::vector<Rival> step_rivals(const BenchOptions& options);

/// A training step alone, and while another process wants a core for itself.
struct NeighbourBench {
  std::string what;  ///< native, lean or released
  BenchOptions options;
  Timing alone = {}, beside = {};
  double speed_kept() const { return alone.median / beside.median; }
};
std::vector<NeighbourBench> bench_neighbour(const BenchOptions& options);
nlohmann::json to_json(const std::vector<NeighbourBench>& results);

/// libtorch that this program was built with, e.g. "1.13.0".
std::string torch_version();
/// The native engine of these options in a few words, e.g. "native avx512, 2 threads".
std::string engine_name(const BenchOptions& options);

/// One kind of pass through one layer of the network, in seconds per call over a batch.
struct ConvBench {
  std::string layer;  ///< "stem", "64x32x32", "64->128 /2"
  std::string pass;   ///< forward, data, weights
  int64_t batch = 0;
  Timing torch = {}, native = {};
  double error = 0;  ///< relative L2 distance between the two results
  double direct_flops = 0, floor_flops = 0, peak_flops = 0;
};

/// Every kind of layer that the network of these options has, in all three passes.
std::vector<ConvBench> bench_conv(const BenchOptions& options);

/// Objects with method, batch, width, size, channels, ms_per_image and the ratios.
nlohmann::json to_json(const std::vector<EngineBench>& results);
nlohmann::json to_json(const std::vector<ConvBench>& results);

}  // namespace ebclr::bench
