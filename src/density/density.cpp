#include "density/density.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "data/catalog.h"
#include "density/proposals.h"
#include "dist/rows.h"
#include "ebm/objective.h"
#include "run/images.h"

namespace ebclr::density {
namespace {
constexpr std::string_view kComponent = "sample";
// Chains of the buffer are as old as chains get: their noise is at its smallest.
constexpr int64_t kOld = 1 << 20;
constexpr int64_t kBatch = 256;  // changes speed and memory only
}  // namespace

bool learns_classes(const run::Run& run) {
  return run.config().method.name == methods::kSupervised;
}

bool learns_density(const std::string& method, double lambda) {
  return method == "ebclr" || (method == methods::kSupervised && lambda > 0);
}
bool learns_density(const run::Run& run) {
  const auto& method = run.config().method;
  return learns_density(method.name, method.ebclr.objective.lambda);
}

Density load_density(const run::Run& run, const DensityOptions& o) {
  auto model = run.load(o.checkpoint);
  engine::place(*model.encoder, model.head.get(), o.placement);
  return density_of(run, std::move(model), o);
}

Density density_of(const run::Run& run, run::Model model, const DensityOptions& o) {
  Density d{std::move(model),   run.config().method.ebclr, o.images, {},
            o.placement.device, learns_classes(run)};
  if (d.model.balance > 0)
    methods::apply_balance(d.options, d.model.balance);  // chains move as they did last
  if (d.images == nullptr) {
    auto source = run.config().data;
    if (!o.data_root.empty()) source.data_root = o.data_root;
    if (!o.data.empty()) source.source = o.data;
    run::check_holds_images(run, source.source);  // others would define another energy
    d.images = std::make_shared<const data::ImageSet>(
        run::load_pixels(run.folder(), source, {.progress = o.reading}).train);
  }
  if (d.images->channels() != d.model.encoder->options().channels)
    core::usage_error(kComponent, fmt::format("{} has {} channels, the encoder expects {}", d.images->name,
                                              d.images->channels(), d.model.encoder->options().channels));
  core::Rng rng(o.seed, core::Stream::kChains, {7});
  const auto views =
      data_proposals(d.images, run.config().views)(std::min(o.references, d.images->size()), rng);
  d.references = outputs(d.model, views, d.device);
  return d;
}

torch::Tensor outputs(const run::Model& model, const torch::Tensor& images, torch::Device device) {
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parts;
  for (int64_t i = 0; i < images.size(0); i += kBatch)
    parts.push_back(model.head->forward(
        model.encoder->forward(images.narrow(0, i, std::min(kBatch, images.size(0) - i)).to(device))));
  return torch::cat(parts);
}

torch::Tensor energy_of(const Density& d, const torch::Tensor& f) {
  const auto outputs = f.to(torch::kCPU);
  return d.classes ? ebm::class_energy(outputs)
                   : ebm::energy(outputs, d.references.to(torch::kCPU), d.options.objective.tau);
}

ebm::EnergyGrad BatchedEnergy::evaluate(const torch::Tensor& v) {
  if (v.size(0) <= batch_) return energy_->evaluate(v);
  ebm::EnergyGrad out{{}, torch::empty_like(v)};
  std::vector<torch::Tensor> energies;
  for (int64_t i = 0; i < v.size(0); i += batch_) {
    const int64_t count = std::min(batch_, v.size(0) - i);
    const auto part = energy_->evaluate(v.narrow(0, i, count));
    energies.push_back(part.energy);
    out.grad.narrow(0, i, count).copy_(part.grad);
  }
  out.energy = torch::cat(energies);
  return out;
}

torch::Tensor BatchedEnergy::value(const torch::Tensor& v) {
  std::vector<torch::Tensor> parts;
  for (const auto& some : v.split(batch_)) parts.push_back(energy_->value(some));
  return torch::cat(parts);
}

std::unique_ptr<BatchedEnergy> energy_function(const Density& d) {
  std::unique_ptr<methods::NetworkEnergy> energy;
  if (d.classes)
    energy = std::make_unique<methods::ClassEnergy>(*d.model.encoder, *d.model.head, d.options.cut);
  else
    energy = std::make_unique<methods::ContrastiveEnergy>(*d.model.encoder, *d.model.head, d.references,
                                                          d.options.objective.tau, d.options.cut);
  return std::make_unique<BatchedEnergy>(std::move(energy), kBatch);
}

torch::Tensor energies(const Density& density, const data::ImageSet& set,
                       const std::shared_ptr<dist::Group>& ranks) {
  if (set.size() == 0)
    core::usage_error(kComponent,
                      fmt::format("'{}' has no {} images to compute energies of", set.name, set.split));
  const auto found = dist::compute_rows(
      *ranks, {.total = set.size(),
               .batch = kBatch,
               .width = density.model.head->options().out,
               .compute = [&](int64_t first, int64_t count) {
                 return outputs(density.model, data::to_unit_range(set.pixels.narrow(0, first, count)),
                                density.device);
               }});
  if (ranks->rank() != 0) return found.flatten();
  return energy_of(density, found);
}

ChainStarts::ChainStarts(const run::Run& run, const Density& density, const std::string& init, uint64_t seed)
    : rng_(seed, core::Stream::kChains) {
  if (init == "data") {
    draw_ = data_proposals(density.images, run.config().views);
  } else if (init == "uniform") {
    auto shape = density.model.image_shape;  // not known of old or imported checkpoints
    if (shape.empty())
      shape = {density.images->channels(), density.images->height(), density.images->width()};
    draw_ = ebm::uniform_proposals(shape);
  } else if (init == "buffer") {
    const auto buffer = run.newest_buffer();
    if (buffer.tensors.empty())
      core::usage_error(kComponent, fmt::format("{}: has no replay buffer; start from data or uniform",
                                                run.folder().root.string()));
    chains_ = buffer.at("chains", "buffer").to(torch::kFloat32);
    age_ = kOld;
  } else {
    core::usage_error(kComponent, fmt::format("chains from '{}'; choose data, uniform or buffer", init));
  }
}

torch::Tensor ChainStarts::next(int64_t n) {
  if (!chains_.defined()) return draw_(n, rng_);
  n = std::min(n, chains_.size(0) - given_);
  given_ += n;
  return chains_.narrow(0, given_ - n, n);
}

}  // namespace ebclr::density
