#include "fid/model_samples.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "data/catalog.h"
#include "eval/energy.h"
#include "train/trainer.h"

namespace ebclr::fid {
namespace {
constexpr std::string_view kModelSamplesComponent = "sample";
// Chains of the buffer are as old as chains get: their noise is at its smallest.
constexpr int64_t kOld = 1 << 20;
}  // namespace

Density load_density(const run::Run& run, const DensityOptions& o) {
  Density d{run.load(o.checkpoint), nullptr, {}};
  d.model.encoder->to(o.device);
  d.model.head->to(o.device);
  if (o.device.is_cpu()) engine::attach(*d.model.encoder, o.engine);
  auto source = run.config().data;
  if (!o.data_root.empty()) source.data_root = o.data_root;
  d.images = std::make_shared<const data::ImageSet>(data::load(source).train);
  if (d.images->channels() != d.model.encoder->options().channels)
    core::usage_error(kModelSamplesComponent,
                      fmt::format("{} has {} channels, the encoder expects {}", d.images->name,
                                  d.images->channels(), d.model.encoder->options().channels));
  core::Rng rng(o.seed, core::Stream::kChains, {7});
  const auto views =
      train::data_proposals(d.images, run.config().views)(std::min(o.references, d.images->size()), rng);
  d.references = eval::outputs(*d.model.encoder, *d.model.head, views, 256, o.device);
  return d;
}

ChainStarts::ChainStarts(const run::Run& run, const Density& density, const std::string& init, uint64_t seed)
    : rng_(seed, core::Stream::kChains) {
  const auto& images = *density.images;
  if (init == "data") {
    draw_ = train::data_proposals(density.images, run.config().views);
  } else if (init == "uniform") {
    draw_ = [shape = std::vector<int64_t>{images.channels(), images.height(), images.width()}](
                int64_t n, core::Rng& rng) { return uniform_images(n, shape, rng); };
  } else if (init == "buffer") {
    const auto buffer = run.newest_buffer();
    if (buffer.tensors.empty())
      core::usage_error(
          kModelSamplesComponent,
          fmt::format("{}: has no replay buffer; use --init data or uniform", run.folder().root.string()));
    chains_ = buffer.at("chains", "buffer").to(torch::kFloat32);
    age_ = kOld;
  } else {
    core::usage_error(kModelSamplesComponent,
                      fmt::format("chains from '{}'; choose data, uniform or buffer", init));
  }
}

torch::Tensor ChainStarts::next(int64_t n) {
  if (!chains_.defined()) return draw_(n, rng_);
  n = std::min(n, chains_.size(0) - given_);
  given_ += n;
  return chains_.narrow(0, given_ - n, n);
}

torch::Tensor uniform_images(int64_t n, const std::vector<int64_t>& shape, core::Rng& rng) {
  std::vector<int64_t> sizes = {n};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  auto out = torch::empty(sizes, torch::kFloat32);
  for (float *p = out.data_ptr<float>(), *end = p + out.numel(); p != end; ++p) *p = rng.uniform(-1.0f, 1.0f);
  return out;
}

}  // namespace ebclr::fid
