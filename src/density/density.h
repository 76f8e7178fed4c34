#pragma once
// A run's network as a density q(v) that images can be drawn from.

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/rng.h"
#include "data/catalog.h"
#include "data/image_set.h"
#include "dist/group.h"
#include "engine/engine.h"
#include "methods/contrastive_energy.h"
#include "methods/method.h"
#include "run/run.h"

namespace ebclr::density {

struct DensityOptions {
  std::string checkpoint = "last";
  std::filesystem::path data_root = {};  ///< empty: the run's
  /// Where the run's folder of images lies now; empty: where it was. Throws if it holds others.
  std::string data = {};
  /// The run's train images where somebody has them already; null: they are read.
  std::shared_ptr<const data::ImageSet> images = {};
  std::function<void(const data::LoadProgress&)> reading = {};  ///< told while they are read; may throw
  int64_t references = 128;                                     ///< views that define the marginal
  uint64_t seed = 0;                                            ///< of those views
  engine::Placement placement = {};
};

/// A checkpoint ready for sampling.
struct Density {
  run::Model model;
  methods::EbclrOptions options;                 ///< temperature and sampler of the run
  std::shared_ptr<const data::ImageSet> images;  ///< the run's train images; their notes say what changed
  torch::Tensor references;                      ///< outputs of views of them, [M, D] on the device
  torch::Device device = torch::kCPU;
  bool classes = false;  ///< outputs are logits of classes: the energy is that of JEM, without references
};

/// Are the outputs of this run's head logits of classes?
bool learns_classes(const run::Run& run);

/// Does this method, with its generative term weighed by lambda, learn a density? Else energies only say how
/// near an image's projection is to those of train images.
bool learns_density(const std::string& method, double lambda);
bool learns_density(const run::Run& run);

/// Loads the network to its device and computes the outputs of reference views.
Density load_density(const run::Run& run, const DensityOptions& options);
/// The same for a model of the run that is loaded and in its place; options.checkpoint says nothing then.
Density density_of(const run::Run& run, run::Model model, const DensityOptions& options);

/// Network outputs f(v) of images float [N, C, H, W], in batches -> [N, D] on the device.
torch::Tensor outputs(const run::Model& model, const torch::Tensor& images, torch::Device device);

/// E of network outputs [N, D] -> [N] on the CPU.
torch::Tensor energy_of(const Density& density, const torch::Tensor& outputs);
/// A network's energy, asked for some chains at a time: these do not know each other, and what the network
/// keeps of all of them at once would not fit into memory (half a megabyte a chain at width 4).
class BatchedEnergy : public ebm::Energy {
 public:
  BatchedEnergy(std::unique_ptr<methods::NetworkEnergy> energy, int64_t batch)
      : energy_(std::move(energy)), batch_(batch) {}
  ebm::EnergyGrad evaluate(const torch::Tensor& v) override;
  /// Energies alone, [N]; no gradient.
  torch::Tensor value(const torch::Tensor& v);

 private:
  std::unique_ptr<methods::NetworkEnergy> energy_;
  int64_t batch_;
};
/// E(v) as samplers want it; the density's networks must outlive it.
std::unique_ptr<BatchedEnergy> energy_function(const Density& density);

/// E(v) of every image of a set (already fit for the encoder, see eval::adapt), [N] on the CPU; [0] on ranks
/// other than 0.
torch::Tensor energies(const Density& density, const data::ImageSet& set,
                       const std::shared_ptr<dist::Group>& ranks = dist::solo());

/// Where chains begin: "data" (augmented train images), "uniform" noise or the run's replay "buffer".
class ChainStarts {
 public:
  /// Throws Error for other names, or when the run has no buffer.
  ChainStarts(const run::Run& run, const Density& density, const std::string& init, uint64_t seed);

  /// The next n starts [n, C, H, W] on the CPU; fewer when the buffer is used up.
  torch::Tensor next(int64_t n);
  /// Visits that the chains have behind them.
  int64_t age() const { return age_; }
  /// Starts that there are; -1 without end.
  int64_t available() const { return chains_.defined() ? chains_.size(0) : -1; }

 private:
  std::function<torch::Tensor(int64_t, core::Rng&)> draw_;
  torch::Tensor chains_;  // of the buffer
  int64_t given_ = 0, age_ = 0;
  core::Rng rng_;
};

}  // namespace ebclr::density
