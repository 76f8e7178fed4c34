#include "ebm/sampler.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "core/rng.h"

namespace ebclr::ebm {
namespace {

/// v - alpha * clamp(grad) + sigma * noise; sigma has the shape [N, 1, ...].
torch::Tensor langevin_step(const torch::Tensor& v, const torch::Tensor& grad, const torch::Tensor& sigma,
                            const SamplerOptions& o, NoiseSource& noise) {
  const auto drift = o.clamp > 0 ? grad.clamp(-o.clamp, o.clamp) : grad;
  return (v - drift * o.step_size).add_(noise.draw(v).mul_(sigma));
}

torch::Tensor broadcast_scale(const torch::Tensor& v, const torch::Tensor& counts, const SamplerOptions& o) {
  std::vector<int64_t> shape(static_cast<size_t>(v.dim()), 1);
  shape[0] = v.size(0);
  return noise_scale(counts, o).to(v.options()).view(shape);
}

/// A run that was begun in bfloat16 must not go on in float without a word: its bits would depend on the
/// machine.
void require_float(const SamplerOptions& o) {
  if (o.precision == Precision::kFloat) return;
  core::usage_error(
      "ebm.sampler",
      "sampler.precision bfloat16 needs EBCLR's energy on the native CPU engine and a processor with "
      "avx512_bf16; compute chains in float: --set sampler.precision=float");
}

/// Standard normals shaped like `like`, from that number of the key's sequence on.
torch::Tensor normal_like(const torch::Tensor& like, uint64_t key, uint64_t first) {
  auto out = torch::empty(like.sizes(), torch::kFloat32);
  float* data = out.data_ptr<float>();
  at::parallel_for(0, out.numel(), 16384, [&](int64_t begin, int64_t end) {
    core::fill_normal(key, first + static_cast<uint64_t>(begin),
                      {data + begin, static_cast<size_t>(end - begin)});
  });
  return out.to(like.options());
}

class LangevinSampler : public Sampler {
 public:
  explicit LangevinSampler(const SamplerOptions& options) : o_(options) {}

  SampleResult run(Energy& energy, const torch::Tensor& start, const torch::Tensor& counts,
                   NoiseSource& noise) const override {
    auto v = start.detach();
    const LangevinPlan plan{.steps = o_.steps,
                            .step_size = o_.step_size,
                            .clamp = o_.clamp,
                            .sigma = noise_scale(counts, o_),
                            .precision = o_.precision};
    if (auto done = energy.run_langevin(v, plan, noise)) return *done;
    require_float(o_);
    SampleResult out;
    const auto sigma = broadcast_scale(v, counts, o_);
    for (int64_t t = 0; t < o_.steps; ++t) {
      auto [e, grad] = energy.evaluate(v);
      out.energies.push_back(e);
      v = langevin_step(v, grad, sigma, o_, noise);
    }
    out.chains = v;
    return out;
  }
  double forward_units() const override { return sampler_units(o_); }

 private:
  SamplerOptions o_;
};

class YopoSampler : public Sampler {
 public:
  explicit YopoSampler(const SamplerOptions& options) : o_(options) {}

  SampleResult run(Energy& energy, const torch::Tensor& start, const torch::Tensor& counts,
                   NoiseSource& noise) const override {
    auto* cut = dynamic_cast<CutEnergy*>(&energy);
    if (!cut) core::usage_error("ebm.yopo", "this energy has no cut layer; use sampler.kind: msgld");
    auto v = start.detach();
    const LangevinPlan plan{.steps = o_.outer,
                            .inner = o_.inner,
                            .step_size = o_.step_size,
                            .clamp = o_.clamp,
                            .sigma = noise_scale(counts, o_),
                            .precision = o_.precision};
    if (auto done = energy.run_langevin(v, plan, noise)) return *done;
    require_float(o_);
    SampleResult out;
    const auto sigma = broadcast_scale(v, counts, o_);
    for (int64_t m = 0; m < o_.outer; ++m) {
      auto [e, p] = cut->costate(v);
      out.energies.push_back(e);
      for (int64_t n = 0; n < o_.inner; ++n) v = langevin_step(v, cut->pull_back(v, p), sigma, o_, noise);
    }
    out.chains = v;
    return out;
  }
  double forward_units() const override { return sampler_units(o_); }

 private:
  SamplerOptions o_;
};

}  // namespace

NoiseReader NoiseSource::draw_ahead(const torch::Tensor& like, int64_t draws) {
  std::vector<torch::Tensor> all;
  for (int64_t i = 0; i < draws; ++i) all.push_back(draw(like).to(torch::kCPU, torch::kFloat32).contiguous());
  return [all, size = like.numel()](int64_t first, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      out[i] = all[static_cast<size_t>(at / size)].data_ptr<float>()[at % size];
    }
  };
}

NoiseReader CounterNoise::draw_ahead(const torch::Tensor& like, int64_t draws) {
  const uint64_t start = counter_;
  counter_ += static_cast<uint64_t>(like.numel() * draws);
  return [key = key_, start](int64_t first, std::span<float> out) {
    core::fill_normal(key, start + static_cast<uint64_t>(first), out);
  };
}

torch::Tensor CounterNoise::draw(const torch::Tensor& like) {
  return normal_like(like, key_, skip(static_cast<uint64_t>(like.numel())));
}

torch::Tensor RowsNoise::draw(const torch::Tensor& like) {
  const int64_t row = like.numel() / like.size(0);
  const uint64_t start = whole_.skip(static_cast<uint64_t>(row * total_));
  return normal_like(like, whole_.key(), start + static_cast<uint64_t>(row * first_));
}

NoiseReader RowsNoise::draw_ahead(const torch::Tensor& like, int64_t draws) {
  const int64_t mine = like.numel(), row = mine / like.size(0), all = row * total_;
  const auto start = static_cast<int64_t>(whole_.skip(static_cast<uint64_t>(all * draws))) + row * first_;
  return [key = whole_.key(), start, mine, all](int64_t first, std::span<float> out) {
    // Between two draws of these rows lie the numbers of the others.
    while (!out.empty()) {
      const int64_t draw = first / mine, at = first % mine;
      const auto n = std::min(static_cast<int64_t>(out.size()), mine - at);
      core::fill_normal(key, static_cast<uint64_t>(start + draw * all + at),
                        out.first(static_cast<size_t>(n)));
      out = out.subspan(static_cast<size_t>(n));
      first += n;
    }
  };
}

torch::Tensor noise_scale(const torch::Tensor& counts, const SamplerOptions& o) {
  if (o.kind == SamplerKind::kSgld) return torch::full({counts.size(0)}, o.sigma_min);
  const auto left = (1 - counts.to(torch::kFloat64) / o.decay).clamp_min(0);
  return (o.sigma_min + (o.sigma_max - o.sigma_min) * left).to(torch::kFloat32);
}

int64_t steps_per_visit(const SamplerOptions& o) {
  return o.kind == SamplerKind::kYopo ? o.outer * o.inner : o.steps;
}

double sampler_units(const SamplerOptions& o) {
  if (o.kind != SamplerKind::kYopo) return 2.0 * static_cast<double>(o.steps);
  // The first inner step ends the full gradient's way back; the others run the first layers again.
  return static_cast<double>(o.outer) * (2.0 + o.inner_units * static_cast<double>(o.inner - 1));
}

std::unique_ptr<Sampler> make_sampler(const SamplerOptions& o) {
  const auto require = [](bool ok, const std::string& text) {
    if (!ok) core::usage_error("ebm.sampler", text);
  };
  require(o.step_size > 0, fmt::format("sampler.step_size {} must be above 0", o.step_size));
  require(o.clamp >= 0, fmt::format("sampler.clamp {} must be 0 (off) or above", o.clamp));
  require(o.decay > 0, fmt::format("sampler.decay {} must be above 0", o.decay));
  require(o.sigma_min >= 0 && o.sigma_max >= o.sigma_min,
          fmt::format("sampler.sigma_min {} and sigma_max {} must satisfy 0 <= min <= max", o.sigma_min,
                      o.sigma_max));
  if (o.kind == SamplerKind::kYopo) {
    require(o.outer >= 1 && o.inner >= 1, "sampler.outer and sampler.inner must be at least 1");
    return std::make_unique<YopoSampler>(o);
  }
  require(o.steps >= 1, fmt::format("sampler.steps {} must be at least 1", o.steps));
  require(o.kind != SamplerKind::kSgld || o.sigma_min == o.sigma_max,
          "sampler.kind sgld has one noise level: set sampler.sigma_min equal to sampler.sigma_max");
  return std::make_unique<LangevinSampler>(o);
}

}  // namespace ebclr::ebm
