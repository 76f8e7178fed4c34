#include "ebclr/model.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>

#include "api/configuration_impl.h"
#include "api/translate.h"
#include "data/folder.h"
#include "density/density.h"
#include "density/samples.h"
#include "run/run.h"

namespace ebclr {
namespace api {

engine::Placement placement(torch::Device device, Engine engine) {
  engine::EngineOptions options;
  options.engine = engine == Engine::kNative  ? engine::Engine::kNative
                   : engine == Engine::kTorch ? engine::Engine::kTorch
                                              : engine::Engine::kAuto;
  return {device, options};
}

namespace {

constexpr int64_t kBatch = 256;  // changes speed and memory only
// Of one call: at 32 x 32 they take 12 GB, and their noise and gradients as much each.
constexpr int64_t kMostSamples = 1 << 20;
// Networks read [-1, 1]. Augmented images and chains step over a little; pixels of 0..255 are far away.
constexpr double kFarthest = 16;

/// One batch as the network reads it: float [N, C, H, W] in [-1, 1].
torch::Tensor readable(const torch::Tensor& images, int64_t channels) {
  if (!images.defined() || images.dim() != 4)
    input_error("[model] images must be a tensor [N, C, H, W], uint8 or float in [-1, 1]");
  if (images.size(2) < nn::kSmallestSide || images.size(3) < nn::kSmallestSide)
    input_error(fmt::format("[model] images are {} x {}; the encoder reads {} x {} or larger", images.size(3),
                            images.size(2), nn::kSmallestSide, nn::kSmallestSide));
  if (images.size(1) != channels && !(images.size(1) == 1 && channels == 3))
    input_error(
        fmt::format("[model] images have {} channels, the encoder reads {}", images.size(1), channels));
  torch::Tensor x;
  if (images.scalar_type() == torch::kUInt8) {
    x = data::to_unit_range(images);
  } else if (images.is_floating_point()) {
    x = images.detach().to(torch::kFloat32);
    const double most = x.numel() > 0 ? x.abs().max().item<double>() : 0;
    if (!(most <= kFarthest))
      input_error(
          fmt::format("[model] float images with values of {}; the encoder reads [-1, 1] (give pixels "
                      "of 0..255 as uint8)",
                      std::isnan(most) ? "NaN" : fmt::format("up to {:.4g}", most)));
  } else {
    input_error("[model] images must be uint8, or float in [-1, 1]");
  }
  return x.size(1) == channels ? x : x.expand({-1, channels, -1, -1}).contiguous();
}

}  // namespace
}  // namespace api

struct Model::Impl {
  run::Run run;
  run::Model model;
  Configuration configuration;
  ModelOptions options;
  std::optional<density::Density> loaded;  // with references; made when first asked for

  int64_t channels() const { return model.encoder->options().channels; }

  torch::Tensor outputs(const torch::Tensor& images, Output output) const {
    torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parts;
    api::readable(images.defined() && images.dim() == 4 ? images.narrow(0, 0, 0) : images, channels());
    for (int64_t i = 0; i < images.size(0); i += api::kBatch) {
      const auto batch =
          api::readable(images.narrow(0, i, std::min(api::kBatch, images.size(0) - i)), channels());
      auto y = model.encoder->forward(batch.to(options.device));
      if (output == Output::kProjection) y = model.head->forward(y);
      parts.push_back(y.to(torch::kCPU));
    }
    if (parts.empty()) return torch::empty({0, columns(output)});
    return torch::cat(parts);
  }

  int64_t columns(Output output) const {
    return output == Output::kFeatures ? model.encoder->feature_dim() : model.head->options().out;
  }

  density::Density& density() {
    if (!loaded) {
      if (run.config().data.source.empty())
        api::input_error(
            "[model] the run was trained on images in memory; give those that define its energy with "
            "Model::reference");
      loaded = density::density_of(run, model, density_options());
    }
    return *loaded;
  }

  density::DensityOptions density_options() const {
    return {.checkpoint = options.checkpoint,
            .data_root = options.data_root,
            .data = options.data.string(),
            .references = options.references,
            .seed = options.seed,
            .placement = api::placement(options.device, options.engine)};
  }
};

namespace {

/// The model's energy for samplers of the caller.
class ModelEnergy : public Energy {
 public:
  explicit ModelEnergy(const density::Density& d) : energy_(density::energy_function(d)), model_(d.model) {}
  Value evaluate(const torch::Tensor& v) override {
    auto value = energy_->evaluate(v);
    return {value.energy, value.grad};
  }

 private:
  std::unique_ptr<density::BatchedEnergy> energy_;
  run::Model model_;  // keeps the networks alive
};

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Model Model::load(const std::filesystem::path& folder, const ModelOptions& options) {
  return api::translated([&] {
    if (options.references < 1) api::input_error("[model] ModelOptions::references must be at least 1");
    auto run = run::Run::open(folder);
    auto model = run.load(options.checkpoint);
    engine::place(*model.encoder, model.head.get(), api::placement(options.device, options.engine));
    Configuration configuration(std::make_unique<Configuration::Impl>(
        Configuration::Impl{{run::read_run_layer(run.folder().config())}, {}}));
    return Model(std::make_unique<Impl>(
        Impl{std::move(run), std::move(model), std::move(configuration), options, std::nullopt}));
  });
}

int64_t Model::size(Output output) const {
  return impl_->columns(output);
}
std::vector<int64_t> Model::image_shape() const {
  return impl_->model.image_shape;
}
int64_t Model::epoch() const {
  return impl_->model.position.epoch;
}
const Configuration& Model::configuration() const {
  return impl_->configuration;
}

Images Model::read_folder(const std::filesystem::path& folder) const {
  FolderOptions options;
  options.image_size = impl_->model.side;
  options.grayscale = impl_->channels() == 1;
  return ebclr::read_folder(folder, options);
}

torch::Tensor Model::embed(const torch::Tensor& images, Output output) const {
  return api::translated([&] { return impl_->outputs(images, output); });
}

torch::Tensor Model::energy(const torch::Tensor& images) const {
  return api::translated(
      [&] { return density::energy_of(impl_->density(), impl_->outputs(images, Output::kProjection)); });
}

void Model::reference(const torch::Tensor& images) {
  api::translated([&] {
    const auto f = impl_->outputs(images, Output::kProjection).to(impl_->options.device);
    if (f.size(0) == 0) api::input_error("[model] no reference images");
    if (impl_->loaded) {
      impl_->loaded->references = f;
    } else {
      impl_->loaded = density::Density{impl_->model,          impl_->run.config().method.ebclr,   nullptr, f,
                                       impl_->options.device, density::learns_classes(impl_->run)};
    }
  });
}

std::shared_ptr<Energy> Model::energy_function() const {
  return api::translated([&] { return std::make_shared<ModelEnergy>(impl_->density()); });
}

Samples Model::sample(const SampleOptions& o) const {
  return api::translated([&] {
    if (o.count < 1 || o.steps < 1) api::input_error("[model] count and steps must be at least 1");
    if (o.count > api::kMostSamples)
      api::input_error(
          fmt::format("[model] {} samples in one call; draw at most {} and others with another seed", o.count,
                      api::kMostSamples));
    const auto& d = impl_->density();
    const char* init = o.start == Start::kData ? "data" : o.start == Start::kUniform ? "uniform" : "buffer";
    if (!d.images && o.start == Start::kData)
      api::input_error(
          "[model] the run's images are not loaded (Model::reference was given others); start from "
          "Start::kUniform or kBuffer");
    density::ChainStarts starts(impl_->run, d, init, o.seed);
    const auto start = starts.next(o.count).to(impl_->options.device);
    if (!o.sampler) {
      const auto drawn =
          density::draw_samples(d, start, {.steps = o.steps, .age = starts.age(), .seed = o.seed});
      return Samples{drawn.samples.to(torch::kCPU), drawn.energy_start, drawn.energy_end};
    }
    ModelEnergy energy(d);
    Noise noise(o.seed);
    const auto value = [&](const torch::Tensor& v) {
      return density::energy_of(d, density::outputs(d.model, v, d.device));
    };
    Samples out;
    out.energy_start = value(start);
    const auto visits = torch::full({start.size(0)}, starts.age(), torch::kInt64);
    out.images = api::run_checked(*o.sampler, energy, start, visits, noise).chains.to(torch::kCPU);
    out.energy_end = value(out.images);
    return out;
  });
}

}  // namespace ebclr
