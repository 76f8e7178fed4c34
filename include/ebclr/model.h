#pragma once
// A trained network: features of images, and the density that EBCLR learnt.

#include <ATen/Parallel.h>
#include <ebclr/api.h>
#include <ebclr/configuration.h>
#include <ebclr/images.h>
#include <ebclr/sampling.h>
#include <torch/types.h>

#include <filesystem>
#include <memory>
#include <string>

namespace ebclr {

/// What computes the encoder on a CPU: ebclr's own kernels where they can run (kAuto), always, or libtorch.
enum class Engine { kAuto, kNative, kTorch };

struct ModelOptions {
  std::string checkpoint = "last";  ///< or the number of an epoch
  torch::Device device = torch::kCPU;
  Engine engine = Engine::kAuto;
  std::filesystem::path data_root;  ///< of the run's images, which define the energy; empty: the run's
  int64_t references = 128;         ///< views of them that do, at least 1
  uint64_t seed = 0;                ///< of those views
  std::filesystem::path data;       ///< the folder where the run's images are now; empty: where they were
};

/// What `embed` returns.
enum class Output {
  kFeatures,   ///< of the encoder: what to use downstream
  kProjection  ///< of the projection head behind it: what the objective sees
};

/// Where chains begin.
enum class Start {
  kData,     ///< augmented train images
  kUniform,  ///< uniform noise
  kBuffer    ///< the chains that training left behind
};

struct SampleOptions {
  int64_t count = 64;  ///< at most 2^20
  int64_t steps = 100;
  Start start = Start::kData;
  uint64_t seed = 0;
  std::shared_ptr<Sampler> sampler;  ///< one of your own, run once; empty: the run's, for `steps` steps
};

struct Samples {
  torch::Tensor images;                    ///< float [N, C, H, W] around [-1, 1], on the CPU
  torch::Tensor energy_start, energy_end;  ///< [N]
};

/// The network of a run folder. Threads: as many as torch uses (at::set_num_threads). One object serves one
/// thread at a time.
class EBCLR_API Model {
 public:
  /// Throws Error when the folder is no run or has no readable checkpoint.
  static Model load(const std::filesystem::path& run, const ModelOptions& options = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  /// Columns of `embed`.
  int64_t size(Output output = Output::kFeatures) const;
  /// {C, H, W} of the images that it was trained on.
  std::vector<int64_t> image_shape() const;
  /// Epochs of training behind it.
  int64_t epoch() const;
  const Configuration& configuration() const;

  /// A folder's images as this model reads them: its size, its channels.
  Images read_folder(const std::filesystem::path& folder) const;

  /// images: uint8 [N, C, H, W], or float in [-1, 1]; any H and W from 16 -> float [N, size(output)] on the
  /// CPU. Without gradients, in batches, so that N may be large. Floats that are not finite or far from
  /// [-1, 1] throw Error.
  torch::Tensor embed(const torch::Tensor& images, Output output = Output::kFeatures) const;
  torch::Tensor embed(const Images& images, Output output = Output::kFeatures) const {
    return embed(images.pixels, output);
  }

  /// E(v) of images as `embed` takes them, float [N]: low where the model finds them likely. The first call
  /// reads the run's train images; reference() avoids that.
  torch::Tensor energy(const torch::Tensor& images) const;
  /// Images (as `embed` takes them) that define the energy from now on, in place of views of the run's own.
  void reference(const torch::Tensor& images);
  /// The same energy for samplers; valid while the model lives.
  std::shared_ptr<Energy> energy_function() const;
  /// Images from the density, by Langevin dynamics.
  Samples sample(const SampleOptions& options = {}) const;

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebclr
