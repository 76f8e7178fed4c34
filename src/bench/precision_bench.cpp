#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/engine_bench.h"
#include "core/error.h"
#include "ebm/objective.h"
#include "engine/engine.h"
#include "methods/contrastive_energy.h"
#include "methods/method.h"

namespace ebclr::bench {
namespace {

using torch::Tensor;

const double kTau = ebm::ObjectiveOptions{}.tau;

/// Encoder and head, on the native engine.
struct Subject {
  std::shared_ptr<nn::Encoder> encoder;
  std::shared_ptr<nn::Head> head;
  Tensor references;
};

ebm::SampleResult move_chains(const Subject& s, const Tensor& start, int64_t steps, ebm::Precision precision,
                              uint64_t key) {
  ebm::CounterNoise noise(key);
  methods::ContrastiveEnergy energy(*s.encoder, *s.head, s.references, kTau);
  const auto sampler = ebm::make_sampler({.steps = steps, .precision = precision});
  return sampler->run(energy, start, torch::zeros({start.size(0)}, torch::kInt64), noise);
}

/// Smooth images of random colours, so that there is something to learn.
Tensor smooth_images(const BenchOptions& o, int64_t count) {
  namespace F = torch::nn::functional;
  const Tensor coarse = torch::rand({count, o.channels, 4, 4}) * 2 - 1;
  return F::interpolate(coarse, F::InterpolateFuncOptions()
                                    .size(std::vector<int64_t>{o.size, o.size})
                                    .mode(torch::kBilinear)
                                    .align_corners(false));
}

/// An EBCLR network after some updates, in float.
Subject trained(const BenchOptions& o, int64_t updates) {
  torch::manual_seed(1);
  methods::MethodOptions options;
  options.encoder = {.width = o.width, .channels = o.channels, .stem = nn::parse_stem(o.stem)};
  options.ebclr.sampler.steps = o.sgld_steps;
  options.ebclr.buffer.size = 1024;
  options.seed = 1;
  constexpr int64_t kBatch = 64;
  const methods::MethodContext context{
      .data_proposals = [&o](int64_t n, core::Rng&) { return smooth_images(o, n); },
      .image_shape = {o.channels, o.size, o.size},
      .train_images = kBatch,
      .batch = kBatch};
  const auto method = methods::make_method(options, context);
  const auto encoder = method->encoders().front();
  engine::attach(*encoder,
                 {.engine = engine::Engine::kNative, .threads = o.threads, .instructions = o.instructions});
  std::vector<Tensor> all;
  for (const auto& group : method->parameter_groups())
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  torch::optim::Adam adam(all, torch::optim::AdamOptions(2e-4));
  for (int64_t i = 0; i < updates; ++i) {
    const Tensor images = smooth_images(o, kBatch);
    const methods::StepInput input{.view1 = images + 0.1 * torch::randn_like(images),
                                   .view2 = images.flip({3}) + 0.1 * torch::randn_like(images),
                                   .step = i};
    adam.zero_grad();
    method->step(input).loss.backward();
    adam.step();
    method->after_update(input);
  }
  torch::NoGradGuard no_grad;
  Subject s{encoder, method->shared_head(), {}};
  s.references = s.head->forward(encoder->forward(smooth_images(o, kBatch)));
  return s;
}

Tensor energies_at(const Subject& s, const Tensor& v) {
  return methods::ContrastiveEnergy(*s.encoder, *s.head, s.references, kTau).value(v).to(torch::kDouble);
}

EnergyMoments moments(const Tensor& e) {
  return {e.mean().item<double>(), e.std().item<double>()};
}

}  // namespace

double kolmogorov_smirnov(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double largest = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double at = std::min(a[i], b[j]);
    while (i < a.size() && a[i] == at) ++i;
    while (j < b.size() && b[j] == at) ++j;
    largest = std::max(largest, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                         static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return largest;
}

PrecisionBench bench_precision(const BenchOptions& o, const EnergyOptions& energies) {
  PrecisionBench bench{.options = o};
  const Subject s = trained(o, energies.updates);
  if (!s.encoder->backend()->has_bfloat16_chains())
    core::usage_error("bench", "this processor, or these instructions, have no bfloat16 (avx512_bf16)");
  const Tensor start = torch::rand({o.batch, o.channels, o.size, o.size}) * 2 - 1;
  const auto once = [&](ebm::Precision precision) {
    return [&s, &start, &o, precision] { move_chains(s, start, o.sgld_steps, precision, 1); };
  };
  const auto timings =
      interleave({{"float", once(ebm::Precision::kFloat)}, {"bfloat16", once(ebm::Precision::kBfloat16)}},
                 o.warmup, o.repeats);
  bench.single = timings[0];
  bench.coarse = timings[1];
  if (energies.chains == 0) return bench;

  const Tensor from = torch::rand({energies.chains, o.channels, o.size, o.size}) * 2 - 1;
  for (const int64_t steps : energies.steps) {
    const auto after = [&](ebm::Precision precision, uint64_t key) {
      const Tensor e = energies_at(s, move_chains(s, from, steps, precision, key).chains).contiguous();
      return std::pair{moments(e),
                       std::vector<double>(e.data_ptr<double>(), e.data_ptr<double>() + e.numel())};
    };
    const auto [single, a] = after(ebm::Precision::kFloat, 1);
    const auto [coarse, b] = after(ebm::Precision::kBfloat16, 1);
    const auto [other, c] = after(ebm::Precision::kFloat, 2);
    bench.chains.push_back({.steps = steps,
                            .single = single,
                            .coarse = coarse,
                            .other = other,
                            .ks = kolmogorov_smirnov(a, b),
                            .ks_other = kolmogorov_smirnov(a, c)});
  }
  return bench;
}

nlohmann::json to_json(const std::vector<PrecisionBench>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const PrecisionBench& b : results) {
    const auto per_image = [&](double seconds) {
      return seconds * 1e3 / static_cast<double>(b.options.batch);
    };
    nlohmann::json chains = nlohmann::json::array();
    for (const ChainEnergies& c : b.chains) {
      const auto both = [](const EnergyMoments& m) { return nlohmann::json{{"mean", m.mean}, {"sd", m.sd}}; };
      chains.push_back({{"steps", c.steps},
                        {"float", both(c.single)},
                        {"bfloat16", both(c.coarse)},
                        {"float_other_noise", both(c.other)},
                        {"ks", c.ks},
                        {"ks_other_noise", c.ks_other}});
    }
    list.push_back(
        {{"bench", "precision"},
         {"batch", b.options.batch},
         {"width", b.options.width},
         {"size", b.options.size},
         {"channels", b.options.channels},
         {"sgld_steps", b.options.sgld_steps},
         {"ms_per_image", {{"float", per_image(b.single.min)}, {"bfloat16", per_image(b.coarse.min)}}},
         {"ms_per_image_median",
          {{"float", per_image(b.single.median)}, {"bfloat16", per_image(b.coarse.median)}}},
         {"ratio", b.single.min / b.coarse.min},
         {"ratio_median", b.single.median / b.coarse.median},
         {"energies", chains}});
  }
  return list;
}

}  // namespace ebclr::bench
