#include "engine/engine.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "cpu/network.h"
#include "nn/standardised.h"

namespace ebclr::engine {
namespace {

using torch::Tensor;

/// One convolution of the encoder with the normalisation after it (null without BatchNorm).
struct Layer {
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};

/// Convolutions in the order of cpu::ConvParameters: the stem; conv1, conv2, shortcut of each block.
std::vector<Layer> layers_of(nn::Encoder& encoder) {
  std::vector<Layer> layers{{encoder.conv1, encoder.bn1}};
  for (const auto& stage : encoder.stages()) {
    for (const auto& block : stage) {
      layers.push_back({block->conv1, block->bn1});
      layers.push_back({block->conv2, block->bn2});
      if (block->shortcut.is_empty()) continue;
      Layer shortcut{std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(block->shortcut->ptr(0))};
      if (block->shortcut->size() > 1) {
        shortcut.norm = std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(block->shortcut->ptr(1));
      }
      layers.push_back(shortcut);
    }
  }
  return layers;
}

/// Learnable tensors in a fixed order: weight, then bias, or weight, gamma, beta. Standardised weights come
/// as the plain convolutions that they mean, tied to the raw ones by autograd.
std::vector<Tensor> parameters_of(nn::Encoder& encoder, const std::vector<Layer>& layers) {
  std::vector<Tensor> list;
  if (encoder.options().norm == nn::Norm::kSws) {
    for (const nn::PlainConv& c : encoder.plain_convolutions()) list.insert(list.end(), {c.weight, c.bias});
    return list;
  }
  for (const Layer& layer : layers) {
    list.push_back(layer.conv->weight);
    if (layer.norm.is_empty()) {
      list.push_back(layer.conv->bias);
    } else {
      list.push_back(layer.norm->weight);
      list.push_back(layer.norm->bias);
    }
  }
  return list;
}

/// Raw pointers of `parameters` (in the order above) for the kernels; the tensors must outlive them.
std::vector<cpu::ConvParameters> pointers_of(const std::vector<Layer>& layers,
                                             const std::vector<Tensor>& parameters) {
  std::vector<cpu::ConvParameters> list;
  const auto data = [](const Tensor& t) { return t.data_ptr<float>(); };
  size_t at = 0;
  for (const Layer& layer : layers) {
    cpu::ConvParameters p{.weight = data(parameters[at++])};
    if (layer.norm.is_empty()) {
      p.bias = data(parameters[at++]);
    } else {
      p.gamma = data(parameters[at++]);
      p.beta = data(parameters[at++]);
      p.running_mean = data(layer.norm->running_mean);
      p.running_var = data(layer.norm->running_var);
    }
    list.push_back(p);
  }
  return list;
}

/// Tells whether any of a list of tensors has changed: its memory or autograd's count of in-place changes.
class Fingerprint {
 public:
  void add(const Tensor& t) { seen_.emplace_back(t.data_ptr(), t._version()); }
  bool operator==(const Fingerprint& other) const { return seen_ == other.seen_; }

 private:
  std::vector<std::pair<const void*, uint32_t>> seen_;
};

/// Network, transformed weights and what they were made from. Shared by the backend and the graph nodes that
/// wait for their backward pass.
struct State {
  State(const cpu::NetworkShape& shape, const cpu::Kernels& kernels, int threads)
      : network(shape, kernels, threads), threads(threads), lanes(kernels.lanes) {}

  struct Weights {
    cpu::WeightSet set;
    Fingerprint made_from;
    uint64_t generation = 0;  // counts the changes
  };

  std::mutex mutex;  // the network's calls must not overlap
  cpu::Network network;
  Weights plain, folded;  // folded: with BatchNorm's running statistics
  bool taps = false;      // once somebody has sampled few chains, every change of weights makes taps too
  /// For chains in bfloat16, once there are any; their weights are made once per update.
  std::unique_ptr<cpu::Network> coarse;
  Weights coarse_weights;
  int threads, lanes;

  /// The weights of inference and sampling.
  Weights& steady() { return network.shape().batch_norm ? folded : plain; }
};

/// What a graph node keeps between forward and backward.
struct Memory : torch::CustomClassHolder {
  std::shared_ptr<State> state;
  std::unique_ptr<cpu::Tape> tape;
  uint64_t generation = 0;
  bool input_gradient = false, weight_gradients = true;
  cpu::BatchSum sum;                            // of processes that share the batch
  std::vector<cpu::ConvParameters> parameters;  // valid as long as the node's saved tensors are
};

void check_backward(const Memory& memory, const State::Weights& weights) {
  if (torch::GradMode::is_enabled()) {
    core::run_error("engine", "second derivatives are not supported; use the torch engine for create_graph");
  }
  if (memory.generation != weights.generation) {
    core::run_error("engine", "parameters changed between forward and backward; finish backward first");
  }
}

/// Sampling: the parameters are frozen, the images want their gradient.
class SampleFunction : public torch::autograd::Function<SampleFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x,
                        const c10::intrusive_ptr<Memory>& memory) {
    State& state = *memory->state;
    const Tensor images = x.contiguous();
    Tensor features = torch::empty({x.size(0), state.network.features()}, x.options().requires_grad(false));
    memory->tape = state.network.sample(state.steady().set, images.data_ptr<float>(), images.size(0),
                                        images.size(2), images.size(3), features.data_ptr<float>());
    memory->generation = state.steady().generation;
    ctx->saved_data["memory"] = c10::IValue::make_capsule(memory);
    return features;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto memory = c10::static_intrusive_pointer_cast<Memory>(ctx->saved_data["memory"].toCapsule());
    State& state = *memory->state;
    const std::lock_guard lock(state.mutex);
    check_backward(*memory, state.steady());
    const Tensor dfeatures = grads[0].contiguous();
    const cpu::Tape& tape = *memory->tape;
    Tensor dx = torch::empty({tape.images, state.network.shape().channels, tape.height, tape.width},
                             dfeatures.options());
    state.network.input_gradient(state.steady().set, tape, dfeatures.data_ptr<float>(), dx.data_ptr<float>());
    return {dx, Tensor()};
  }
};

/// Training: weight gradients, and that of the images where they want it.
class TrainFunction : public torch::autograd::Function<TrainFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, at::TensorList parameters,
                        const c10::intrusive_ptr<Memory>& memory) {
    State& state = *memory->state;
    const Tensor images = x.contiguous();
    Tensor features = torch::empty({x.size(0), state.network.features()}, x.options().requires_grad(false));
    memory->tape =
        state.network.train(state.plain.set, memory->parameters, images.data_ptr<float>(), images.size(0),
                            images.size(2), images.size(3), features.data_ptr<float>(), memory->sum);
    memory->generation = state.plain.generation;
    // Saved parameters let autograd itself complain if one of them is changed in place before backward.
    torch::autograd::variable_list saved{images};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["memory"] = c10::IValue::make_capsule(memory);
    return features;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto memory = c10::static_intrusive_pointer_cast<Memory>(ctx->saved_data["memory"].toCapsule());
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    State& state = *memory->state;
    const std::lock_guard lock(state.mutex);
    check_backward(*memory, state.plain);
    const Tensor dfeatures = grads[0].contiguous();
    torch::autograd::variable_list result{Tensor()};
    if (memory->input_gradient) result[0] = torch::empty_like(saved[0]);
    for (size_t i = 1; i < saved.size(); ++i) {
      result.push_back(memory->weight_gradients ? torch::empty_like(saved[i]) : Tensor());
    }
    std::vector<cpu::ConvGradients> into;
    const bool norm = state.network.shape().batch_norm;
    for (size_t i = 1; memory->weight_gradients && i < result.size(); i += norm ? 3 : 2) {
      cpu::ConvGradients g{.weight = result[i].data_ptr<float>()};
      if (norm) {
        g.gamma = result[i + 1].data_ptr<float>();
        g.beta = result[i + 2].data_ptr<float>();
      } else {
        g.bias = result[i + 1].data_ptr<float>();
      }
      into.push_back(g);
    }
    state.network.backward(state.plain.set, memory->parameters, *memory->tape, saved[0].data_ptr<float>(),
                           dfeatures.data_ptr<float>(), into,
                           memory->input_gradient ? result[0].data_ptr<float>() : nullptr, memory->sum);
    result.push_back(Tensor());  // the memory
    return result;
  }
};

class NativeBackend : public nn::EncoderBackend {
 public:
  NativeBackend(nn::Encoder& encoder, std::shared_ptr<State> state)
      : encoder_(encoder), layers_(layers_of(encoder)), state_(std::move(state)) {}

  Tensor forward(const Tensor& x) override {
    const std::vector<Tensor> parameters = parameters_of(encoder_, layers_);
    if (!runs_here(x, parameters)) return encoder_.forward_reference(x);
    const bool grad = torch::GradMode::is_enabled();
    bool train = false;
    for (const Tensor& p : parameters) train = train || (grad && p.requires_grad());
    // BatchNorm with the batch's own statistics needs the training pass even where no parameter learns.
    const bool norm = state_->network.shape().batch_norm, batch_statistics = norm && encoder_.is_training();
    if (norm && train && !batch_statistics) return encoder_.forward_reference(x);

    const std::lock_guard lock(state_->mutex);
    const auto memory = c10::make_intrusive<Memory>();
    memory->state = state_;
    memory->input_gradient = grad && x.requires_grad();
    memory->parameters = pointers_of(layers_, parameters);
    if (train || batch_statistics) {
      memory->weight_gradients = train;
      memory->sum = encoder_.batch_sum();
      refresh(state_->plain, parameters, memory->parameters, false, train || memory->input_gradient);
      Tensor features = TrainFunction::apply(x, at::TensorList(parameters), memory);
      if (batch_statistics) update_running(*memory->tape);
      return features;
    }
    State::Weights& weights = state_->steady();
    refresh(weights, parameters, memory->parameters, norm, memory->input_gradient, wants_taps(x));
    if (memory->input_gradient) return SampleFunction::apply(x, memory);
    const Tensor images = x.contiguous();
    Tensor features = torch::empty({x.size(0), state_->network.features()}, x.options().requires_grad(false));
    state_->network.infer(weights.set, images.data_ptr<float>(), images.size(0), images.size(2),
                          images.size(3), features.data_ptr<float>());
    return features;
  }

  bool takes_chains(const Tensor& v, nn::Head& head) override {
    const nn::HeadOptions& h = head.options();
    if (h.hidden_norm || h.output_norm || (state_->network.shape().batch_norm && encoder_.is_training())) {
      return false;
    }
    // (Images that the encoder refuses take the other way, which says so.)
    const int64_t patch = encoder_.options().stem == nn::Stem::kPatch ? 4 : 1;
    return v.dim() == 4 && v.size(1) == encoder_.options().channels && v.size(2) >= nn::kSmallestSide &&
           v.size(3) >= nn::kSmallestSide && v.size(2) % patch == 0 && v.size(3) % patch == 0 &&
           runs_here(v, parameters_of(encoder_, layers_)) && runs_here(v, head.parameters());
  }

  nn::ChainEnd run_chains(const Tensor& v, const nn::ChainJob& job) override {
    torch::NoGradGuard no_grad;
    const std::lock_guard lock(state_->mutex);
    const auto images = static_cast<int>(v.size(0)), height = static_cast<int>(v.size(2)),
               width = static_cast<int>(v.size(3));
    if (job.bfloat16 && state_->coarse == nullptr) {
      state_->coarse =
          std::make_unique<cpu::Network>(state_->network.shape(), *cpu::bf16_kernels(), state_->threads);
    }
    cpu::Network& network = job.bfloat16 ? *state_->coarse : state_->network;
    State::Weights& weights = job.bfloat16 ? state_->coarse_weights : state_->steady();
    if (!job.bfloat16) state_->taps = state_->taps || network.wants_taps(images, height, width);
    const std::vector<Tensor> parameters = parameters_of(encoder_, layers_);
    refresh(weights, parameters, pointers_of(layers_, parameters), network.shape().batch_norm, true, false,
            network);
    const Tensor references = job.references.to(torch::kFloat).contiguous(),
                 sigma = job.sigma.to(torch::kFloat).contiguous();
    cpu::EnergyHead head{.slope = static_cast<float>(nn::slope_of(job.head.options().activation)),
                         .references = references.data_ptr<float>(),
                         .count = static_cast<int>(references.size(0)),
                         .tau = job.tau};
    for (const auto& linear : job.head.linears()) {
      head.layers.push_back({.in = static_cast<int>(linear->weight.size(1)),
                             .out = static_cast<int>(linear->weight.size(0)),
                             .weight = linear->weight.data_ptr<float>(),
                             .bias = linear->bias.data_ptr<float>()});
    }
    nn::ChainEnd end{v.detach().clone(at::MemoryFormat::Contiguous),
                     torch::empty({job.steps, v.size(0)}, torch::kFloat)};
    network.chains(weights.set, head,
                   {.steps = static_cast<int>(job.steps),
                    .inner = static_cast<int>(job.inner),
                    .cut = job.cut,
                    .step_size = static_cast<float>(job.step_size),
                    .clamp = static_cast<float>(job.clamp),
                    .sigma = sigma.data_ptr<float>(),
                    .noise =
                        [&](long first, float* out, long count) {
                          job.noise(first, {out, static_cast<size_t>(count)});
                        }},
                   end.chains.data_ptr<float>(), images, height, width, end.energies.data_ptr<float>());
    return end;
  }

  /// (Not beside kernels of 8 lanes: who asks for avx2 means it.)
  bool has_bfloat16_chains() const override {
    const cpu::Kernels* kernels = cpu::bf16_kernels();
    return kernels != nullptr && kernels->lanes == state_->lanes;
  }

 private:
  /// The torch path takes what the kernels do not: other types and devices, empty batches.
  bool runs_here(const Tensor& x, const std::vector<Tensor>& parameters) const {
    if (!x.device().is_cpu() || x.scalar_type() != torch::kFloat || x.size(0) == 0) return false;
    for (const Tensor& p : parameters) {
      if (!p.device().is_cpu() || p.scalar_type() != torch::kFloat || !p.is_contiguous()) return false;
    }
    return true;
  }

  /// What torch's BatchNorm does to its buffers in a training pass.
  void update_running(const cpu::Tape& tape) {
    torch::NoGradGuard guard;
    for (size_t i = 0; i < layers_.size(); ++i) {
      torch::nn::BatchNorm2dImpl& bn = *layers_[i].norm;
      const int64_t channels = bn.running_mean.numel();
      const auto view = [&](const cpu::Buffer& b) {
        return torch::from_blob(const_cast<float*>(b.data()), {channels}, torch::kFloat);
      };
      const int64_t count = tape.values_per_channel[i];
      const double unbiased =
          static_cast<double>(count) / static_cast<double>(std::max<int64_t>(count - 1, 1));
      bn.num_batches_tracked.add_(1);
      const double momentum =
          bn.options.momentum() ? *bn.options.momentum() : 1.0 / bn.num_batches_tracked.item<double>();
      bn.running_mean.mul_(1 - momentum).add_(view(tape.mean[i]), momentum);
      bn.running_var.mul_(1 - momentum).add_(view(tape.var[i]), momentum * unbiased);
    }
  }

  /// Few images: reading transformed weights, four times as large as the plain ones, would be most of the
  /// time.
  bool wants_taps(const Tensor& x) const {
    return state_->network.wants_taps(static_cast<int>(x.size(0)), static_cast<int>(x.size(2)),
                                      static_cast<int>(x.size(3)));
  }

  /// Transforms the weights again if a parameter has changed since, or if something is missing.
  void refresh(State::Weights& weights, const std::vector<Tensor>& parameters,
               const std::vector<cpu::ConvParameters>& pointers, bool fold, bool backward,
               bool few_images = false) {
    refresh(weights, parameters, pointers, fold, backward, few_images, state_->network);
  }
  void refresh(State::Weights& weights, const std::vector<Tensor>& parameters,
               const std::vector<cpu::ConvParameters>& pointers, bool fold, bool backward, bool few_images,
               const cpu::Network& network) {
    Fingerprint now;
    for (const Tensor& p : parameters) now.add(p);
    if (fold) {
      for (const Layer& layer : layers_) {
        now.add(layer.norm->running_mean);
        now.add(layer.norm->running_var);
      }
    }
    bool taps = few_images || (state_->taps && backward);
    if (now == weights.made_from) {
      if ((weights.set.has_backward || !backward) && (weights.set.has_taps || !taps)) return;
      // What is there stays: callers of both kinds may take turns.
      backward = backward || weights.set.has_backward;
      taps = taps || weights.set.has_taps;
    } else {
      ++weights.generation;
    }
    weights.made_from = {};  // if memory runs out half way, it was made from nothing
    network.load(weights.set, pointers, {.fold = fold, .backward = backward, .taps = taps});
    weights.made_from = now;
  }

  nn::Encoder& encoder_;
  std::vector<Layer> layers_;
  std::shared_ptr<State> state_;
};

/// Why the native engine cannot run this encoder here; empty if it can.
std::string obstacle(nn::Encoder& encoder, const EngineOptions& options, const cpu::Kernels*& kernels) {
  kernels = cpu::find_kernels(options.instructions);
  if (kernels == nullptr) {
    return options.instructions.empty() ? "this processor has no AVX2 with FMA"
                                        : fmt::format("this processor has no {}", options.instructions);
  }
  if (encoder.options().arch == "resnet50") return "resnet50 has bottleneck blocks, which have no kernels";
  return cpu::unsupported({.channels = static_cast<int>(encoder.options().channels),
                           .width = static_cast<int>(encoder.options().width)},
                          nn::kSmallestSide, nn::kSmallestSide);
}

}  // namespace

cpu::StemShape stem_shape(nn::Stem stem) {
  switch (stem) {
    case nn::Stem::kImagenet:
      return {.kernel = 7, .stride = 2, .pad = 3, .pool = true};
    case nn::Stem::kPatch:
      return {.kernel = 4, .stride = 4, .pad = 0};
    case nn::Stem::kCifar:
      break;
  }
  return {};
}

EngineChoice attach(nn::Encoder& encoder, const EngineOptions& options) {
  encoder.set_backend(nullptr);
  if (options.engine == Engine::kTorch) return {false, "torch, as asked for"};
  const cpu::Kernels* kernels = nullptr;
  const std::string why_not = obstacle(encoder, options, kernels);
  if (!why_not.empty()) {
    if (options.engine == Engine::kNative) {
      core::usage_error("engine",
                        fmt::format("engine native cannot run: {}; use engine auto or torch", why_not));
    }
    return {false, fmt::format("torch ({})", why_not)};
  }
  cpu::NetworkShape shape{.channels = static_cast<int>(encoder.options().channels),
                          .stem = stem_shape(encoder.options().stem),
                          .width = static_cast<int>(encoder.options().width),
                          .batch_norm = encoder.options().norm == nn::Norm::kBatch,
                          .slope = static_cast<float>(nn::slope_of(encoder.options().activation))};
  for (size_t s = 0; s < 4; ++s) shape.blocks[s] = static_cast<int>(encoder.stages()[s].size());
  const int threads = options.threads > 0 ? options.threads : at::get_num_threads();
  cpu::let_idle_threads_sleep(threads);
  encoder.set_backend(
      std::make_shared<NativeBackend>(encoder, std::make_shared<State>(shape, *kernels, threads)));
  return {true, fmt::format("native ({}, {} thread{})", kernels->name, threads, threads == 1 ? "" : "s"),
          kernels->name};
}

EngineChoice place(nn::Encoder& encoder, nn::Head* head, const Placement& placement) {
  encoder.to(placement.device);
  if (head) head->to(placement.device);
  if (placement.device.is_cpu()) return attach(encoder, placement.engine);
  encoder.set_backend(nullptr);
  return {false, "torch on " + placement.device.str()};
}

EngineOptions parse_engine(const std::string& name) {
  if (name == "auto") return {.engine = Engine::kAuto};
  if (name == "native") return {.engine = Engine::kNative};
  if (name == "torch") return {.engine = Engine::kTorch};
  for (const char* set : {"amx", "avx512", "avx2"}) {
    if (name == set) return {.engine = Engine::kNative, .instructions = name};
  }
  core::usage_error(
      "engine",
      fmt::format("unknown engine '{}'; choose auto, native or torch, or amx, avx512, avx2 (native)", name));
}

}  // namespace ebclr::engine
