#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/engine_bench.h"
#include "bench/ranks_bench.h"
#include "cpu/cost.h"
#include "ebm/objective.h"
#include "ebm/sampler.h"
#include "engine/engine.h"
#include "methods/contrastive_energy.h"
#include "methods/method.h"

namespace ebclr::bench {
namespace {

using torch::Tensor;

nn::EncoderOptions encoder_options(const BenchOptions& o) {
  return {.width = o.width,
          .channels = o.channels,
          .norm = o.batch_norm ? nn::Norm::kBatch : nn::Norm::kNone,
          .stem = nn::parse_stem(o.stem)};
}

Tensor noise_images(const BenchOptions& o) {
  return torch::rand({o.batch, o.channels, o.size, o.size}) * 2 - 1;
}

int thread_count(const BenchOptions& o) {
  return o.threads > 0 ? o.threads : at::get_num_threads();
}

/// Native engine or an error: a benchmark of torch against torch would mislead.
void attach_native(nn::Encoder& encoder, const BenchOptions& o) {
  engine::attach(
      encoder,
      {.engine = engine::Engine::kNative, .threads = thread_count(o), .instructions = o.instructions});
}

/// Weights in the order that makes libtorch's convolutions run with channels last.
void put_channels_last(nn::Encoder& encoder) {
  for (const Tensor& p : encoder.parameters()) {
    if (p.dim() == 4) p.set_data(p.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

/// Fills in yardsticks and the check of the results; `passes` encoder passes make up the work.
void complete(EngineBench& bench, double passes) {
  const BenchOptions& o = bench.options;
  const cpu::NetworkShape shape{.channels = static_cast<int>(o.channels),
                                .stem = engine::stem_shape(nn::parse_stem(o.stem)),
                                .width = static_cast<int>(o.width)};
  const cpu::PassCost cost = cpu::pass_cost(shape, static_cast<int>(o.size), static_cast<int>(o.size));
  bench.direct_flops = passes * cost.direct;
  bench.floor_flops = passes * cost.fast;
  bench.peak_flops = cpu::fma_peak(*cpu::find_kernels(o.instructions), thread_count(o));

  torch::NoGradGuard guard;
  nn::Encoder native(encoder_options(o), 1), reference(encoder_options(o), 1);
  attach_native(native, o);
  native.eval();
  reference.eval();
  reference.to(torch::kDouble);
  const Tensor x = noise_images(o).narrow(0, 0, std::min<int64_t>(o.batch, 4));
  const Tensor want = reference.forward(x.to(torch::kDouble));
  bench.error = ((native.forward(x).to(torch::kDouble) - want).norm() / want.norm()).item<double>();
}

/// The energy as the released code differentiates it: backward through everything, weight gradients included,
/// which are then thrown away.
class ReleasedEnergy : public ebm::Energy {
 public:
  ReleasedEnergy(nn::Encoder& encoder, nn::Head& head, const Tensor& references, double tau)
      : encoder_(encoder), head_(head), references_(references.detach()), tau_(tau) {}

  ebm::EnergyGrad evaluate(const Tensor& v) override {
    const Tensor x = v.detach().requires_grad_();
    const Tensor e = ebm::energy(head_.forward(encoder_.forward(x)), references_, tau_);
    e.sum().backward();
    return {e.detach(), x.grad()};
  }

 private:
  nn::Encoder& encoder_;
  nn::Head& head_;
  Tensor references_;
  double tau_;
};

/// Networks, chains and optimizer of one rival; all rivals start alike.
struct Learner {
  explicit Learner(const BenchOptions& o)
      : encoder(encoder_options(o), 1),
        head({.in = encoder.feature_dim()}, 1),
        noise(1),
        images(noise_images(o)) {
    std::vector<Tensor> all = encoder.parameters();
    for (const Tensor& p : head.parameters()) all.push_back(p);
    adam = std::make_unique<torch::optim::Adam>(all, torch::optim::AdamOptions(2e-4));
  }
  nn::Encoder encoder;
  nn::Head head;
  ebm::CounterNoise noise;
  Tensor images;
  std::unique_ptr<torch::optim::Adam> adam;
};

/// One EBCLR step in plain sight, the released way.
void released_step(Learner& l, const Tensor& view1, const Tensor& view2, const BenchOptions& o) {
  const ebm::ObjectiveOptions objective;
  const Tensor f1 = l.head.forward(l.encoder.forward(view1)), f2 = l.head.forward(l.encoder.forward(view2));
  ReleasedEnergy energy(l.encoder, l.head, f2, objective.tau);
  const auto sampler = ebm::make_sampler({.steps = o.sgld_steps});
  const Tensor counts = torch::zeros({o.batch}, torch::kInt64);
  const Tensor samples = sampler->run(energy, l.images, counts, l.noise).chains;
  const Tensor fn = l.head.forward(l.encoder.forward(samples));
  l.adam->zero_grad();
  ebm::ebclr_objective(f1, f2, fn, objective).loss.backward();
  l.adam->step();
}

/// A method of the product with its optimizer.
struct MethodLearner {
  MethodLearner(const BenchOptions& o, bool native) {
    methods::MethodOptions options;
    options.name = o.method;
    options.encoder = encoder_options(o);
    options.ebclr.sampler.steps = o.sgld_steps;
    options.ebclr.chains = o.chains;
    options.ebclr.buffer.size = 4 * o.batch;
    options.seed = 1;
    const methods::MethodContext context{.data_proposals =
                                             [o](int64_t n, core::Rng&) {
                                               return torch::rand({n, o.channels, o.size, o.size}) * 2 - 1;
                                             },
                                         .image_shape = {o.channels, o.size, o.size},
                                         .train_images = o.batch,
                                         .batch = o.batch};
    method = methods::make_method(options, context);
    for (const auto& encoder : method->encoders()) {
      if (native) attach_native(*encoder, o);
      if (!native && o.channels_last) put_channels_last(*encoder);
    }
    std::vector<Tensor> all;
    for (const auto& group : method->parameter_groups()) {
      all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    }
    adam = std::make_unique<torch::optim::Adam>(all, torch::optim::AdamOptions(2e-4));
  }

  void step(const Tensor& view1, const Tensor& view2) {
    const methods::StepInput input{.view1 = view1, .view2 = view2, .step = count++};
    adam->zero_grad();
    method->step(input).loss.backward();
    adam->step();
    method->after_update(input);
  }

  std::unique_ptr<methods::Method> method;
  std::unique_ptr<torch::optim::Adam> adam;
  int64_t count = 0;
};

}  // namespace

double least_exchange(const BenchOptions& o) {
  const MethodLearner learner(o, false);
  double floats = 0;
  for (const auto& group : learner.method->parameter_groups())
    for (const auto& p : group.parameters) floats += static_cast<double>(p.numel());
  const int64_t rows = 2 * o.batch + (o.method == "ebclr" ? methods::chains_of(o.chains, o.batch) : 0);
  floats += static_cast<double>(rows * learner.method->head().options().out);
  return floats * sizeof(float);
}

std::string torch_version() {
  return TORCH_VERSION;
}

std::string engine_name(const BenchOptions& o) {
  return fmt::format("native {}, {} thread{}", cpu::find_kernels(o.instructions)->name, thread_count(o),
                     thread_count(o) == 1 ? "" : "s");
}

std::vector<Rival> step_rivals(const BenchOptions& o) {
  const Tensor view1 = noise_images(o), view2 = noise_images(o);
  const auto method = [&](bool with_engine) {
    const auto learner = std::make_shared<MethodLearner>(o, with_engine);
    return [learner, view1, view2] { learner->step(view1, view2); };
  };
  std::vector<Rival> rivals{{"native", method(true)}, {"lean", method(false)}};
  if (o.method == "ebclr") {
    const auto released = std::make_shared<Learner>(o);
    if (o.channels_last) put_channels_last(released->encoder);
    rivals.push_back(
        {"released", [released, view1, view2, o] { released_step(*released, view1, view2, o); }});
  }
  return rivals;
}

EngineBench bench_step(const BenchOptions& o) {
  EngineBench bench{.what = "step", .options = o};
  const std::vector<Timing> timings = interleave(step_rivals(o), o.warmup, o.repeats);
  bench.native = timings[0];
  bench.lean = timings[1];
  bench.released = timings.back();
  complete(bench, MethodLearner(o, false).method->forward_units(o.batch));
  return bench;
}

EngineBench bench_sampler(const BenchOptions& o) {
  EngineBench bench{.what = "sampler", .options = o};
  Learner released(o), lean(o), native(o);
  attach_native(native.encoder, o);
  if (o.channels_last) {
    put_channels_last(lean.encoder);
    put_channels_last(released.encoder);
  }
  const Tensor references = torch::randn({o.batch, lean.head.options().out});
  ebm::SamplerOptions steps{.steps = o.sgld_steps};
  if (o.yopo_inner > 0) {
    steps = {.kind = ebm::SamplerKind::kYopo,
             .outer = std::max<int64_t>(1, o.sgld_steps / o.yopo_inner),
             .inner = o.yopo_inner};
  }
  const auto sampler = ebm::make_sampler(steps), plain = ebm::make_sampler({.steps = o.sgld_steps});
  const Tensor counts = torch::zeros({o.batch}, torch::kInt64);
  const double tau = ebm::ObjectiveOptions{}.tau;
  const auto run = [&](Learner& l, ebm::Energy& energy) { sampler->run(energy, l.images, counts, l.noise); };
  ReleasedEnergy released_energy(released.encoder, released.head, references, tau);
  methods::ContrastiveEnergy lean_energy(lean.encoder, lean.head, references, tau, o.cut);
  methods::ContrastiveEnergy native_energy(native.encoder, native.head, references, tau, o.cut);
  const std::vector<Timing> timings = interleave(
      {{"native", [&] { run(native, native_energy); }},
       {"lean", [&] { run(lean, lean_energy); }},
       {"released", [&] { plain->run(released_energy, released.images, counts, released.noise); }}},
      o.warmup, o.repeats);
  bench.native = timings[0];
  bench.lean = timings[1];
  bench.released = timings[2];
  complete(bench, sampler->forward_units());
  return bench;
}

EngineBench bench_embed(const BenchOptions& o) {
  EngineBench bench{.what = "embed", .options = o};
  torch::NoGradGuard guard;
  nn::Encoder lean(encoder_options(o), 1), native(encoder_options(o), 1);
  attach_native(native, o);
  lean.eval();
  native.eval();
  const Tensor x = noise_images(o);
  const std::vector<Timing> timings = interleave(
      {{"native", [&] { native.forward(x); }}, {"lean", [&] { lean.forward(x); }}}, o.warmup, o.repeats);
  bench.native = timings[0];
  bench.lean = bench.released = timings[1];
  complete(bench, 1);
  return bench;
}

nlohmann::json to_json(const std::vector<EngineBench>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const EngineBench& b : results) {
    const BenchOptions& o = b.options;
    const auto median = [&](const Timing& t) { return t.median * 1e3 / static_cast<double>(o.batch); };
    list.push_back(
        {{"bench", b.what},
         {"method", o.method},
         {"batch_norm", o.batch_norm},
         {"batch", o.batch},
         {"width", o.width},
         {"size", o.size},
         {"channels", o.channels},
         {"stem", o.stem},
         {"sgld_steps", o.sgld_steps},
         {"chains", o.chains},
         {"channels_last", o.channels_last},
         {"yopo_inner", o.yopo_inner},
         {"cut", o.cut},
         {"libtorch", torch_version()},
         {"threads", thread_count(o)},
         {"instructions", cpu::find_kernels(o.instructions)->name},
         {"ms_per_image",
          {{"released", b.ms_per_image(b.released)},
           {"lean", b.ms_per_image(b.lean)},
           {"native", b.ms_per_image(b.native)}}},
         {"ms_per_image_median",
          {{"released", median(b.released)}, {"lean", median(b.lean)}, {"native", median(b.native)}}},
         {"ratio_released", b.ratio_released()},
         {"ratio_lean", b.ratio_lean()},
         {"ratio_released_median", b.released.median / b.native.median},
         {"ratio_lean_median", b.lean.median / b.native.median},
         {"relative_error", b.error},
         {"peak_gflops", b.peak_flops / 1e9},
         {"peak_share", b.peak_share()},
         {"floor_share", b.floor_share()}});
  }
  return list;
}

}  // namespace ebclr::bench
