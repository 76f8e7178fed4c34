#include "cpu/network.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace ebclr::cpu {
namespace {

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::size_t l2_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{512} << 10;
}

std::string unsupported(const NetworkShape& shape, int height, int width) {
  if (shape.channels < 1 || shape.channels > 4) {
    return "images have " + std::to_string(shape.channels) + " channels, the kernels take 1 to 4";
  }
  if (shape.width < 8 || shape.width % 8 != 0) {
    return "width " + std::to_string(shape.width) + " is not a multiple of 8";
  }
  if (height < 1 || width < 1) return "empty images";
  return "";
}

Tape::~Tape() {
  for (auto* list : {&signs, &activations, &raw, &mean, &var}) {
    for (Buffer& buffer : *list) pool_->give(std::move(buffer));
  }
}

Network::Network(const NetworkShape& shape, const Kernels& kernels, int threads, std::size_t cache_bytes)
    : shape_(shape),
      kernels_(kernels),
      threads_(std::max(1, threads)),
      l2_bytes_(cache_bytes > 0 ? cache_bytes : l2_bytes()),
      pool_(std::make_shared<BufferPool>()),
      workers_(threads_) {
  const auto layer = [&](int in, int out, int kernel, int stride) {
    convs_.push_back({round_up(in, kernels.lanes), round_up(out, kernels.lanes), in, out, kernel, stride});
    return static_cast<int>(convs_.size()) - 1;
  };
  layer(shape.channels, shape.width, 3, 1);
  convs_[0].in = shape.channels;
  int in = shape.width;
  for (int stage = 0; stage < 4; ++stage) {
    const int out = shape.width << stage;
    for (int i = 0; i < shape.blocks[stage]; ++i) {
      const int stride = stage > 0 && i == 0 ? 2 : 1;
      BlockLayer block{stage, layer(in, out, 3, stride), layer(out, out, 3, 1), -1};
      if (stride == 2) block.shortcut = layer(in, out, 1, 2);
      blocks_.push_back(block);
      in = out;
    }
  }
}

int Network::stage_channels(int stage) const {
  return round_up(shape_.width << stage, kernels_.lanes);
}

Network::Size Network::stage_size(int stage, const Pass& pass) const {
  Size size{pass.height, pass.width};
  for (int s = 0; s < stage; ++s) size = {(size.height + 1) / 2, (size.width + 1) / 2};
  return size;
}

std::size_t Network::image_floats(int stage, const Pass& pass) const {
  return static_cast<std::size_t>(stage_channels(stage)) * stage_size(stage, pass).pixels();
}

Layer Network::layer_of(const ConvLayer& conv, int stage, const Pass& pass, bool gradient) const {
  const Size size = stage_size(stage - (conv.stride == 2 ? 1 : 0), pass);
  return {gradient ? conv.out : conv.in,
          gradient ? conv.in : conv.out,
          conv.stride,
          size.height,
          size.width,
          gradient};
}

int Network::stage_of_tensor(int tensor) const {
  return tensor == 0 ? 0 : blocks_[(tensor - 1) / 2].stage;
}

int Network::stage_of_conv(int conv) const {
  for (const BlockLayer& block : blocks_) {
    if (conv == block.conv1 || conv == block.conv2 || conv == block.shortcut) return block.stage;
  }
  return 0;
}

/// Images per thread at a time: activations within a part of L2, and enough tiles that the weights, which
/// stream through once per chunk, are worth their way from L3.
int Network::chunk(int stage, const Pass& pass) const {
  const Size size = stage_size(stage, pass);
  const int tiles = ((size.height + 3) / 4) * ((size.width + 3) / 4);
  const auto fit = static_cast<int>(l2_bytes_ / 4 / (image_floats(stage, pass) * sizeof(float)));
  const int share = (pass.images + threads_ - 1) / threads_;
  return std::min(std::max({1, fit, (64 + tiles - 1) / tiles}), share);
}

/// Stages whose weights no core can keep near it: the team splits their channels, so that each thread streams
/// only its part of the weights.
bool Network::together(int stage) const {
  const int channels = stage_channels(stage);
  return threads_ > 1 && kernels_.weight_floats(channels, channels, 3, false) * sizeof(float) > 8 * l2_bytes_;
}

Schedule Network::schedule(const Layer& layer, int stage) const {
  Schedule s = kernels_.cut(layer, l2_bytes_);
  s.shared = together(stage);
  return s;
}

Schedule Network::schedule(const Layer& layer, int stage, Worker& worker) {
  Schedule s = schedule(layer, stage);
  s.v = (s.shared ? common_ : worker).v.data();
  s.m = worker.m.data();
  return s;
}

void Network::prepare(const Pass& pass, bool stage_buffers) {
  std::size_t own = 0, common = 0, v = 0, m = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const std::size_t floats = image_floats(stage, pass);
    if (together(stage)) {
      common = std::max(common, pass.images * floats);
    } else {
      own = std::max(own, std::min(chunk(stage, pass), pass.images) * floats);
    }
    if (stage_buffers) stage_[stage].reserve(pass.images * floats);
  }
  for (std::size_t i = 1; i < convs_.size(); ++i) {
    const ConvLayer& conv = convs_[i];
    if (conv.kernel != 3) continue;
    for (const bool gradient : {false, true}) {
      const int stage = stage_of_conv(static_cast<int>(i));
      const Layer layer = layer_of(conv, stage, pass, gradient);
      const Space space = kernels_.space(layer, schedule(layer, stage));
      v = std::max(v, space.v);
      m = std::max(m, space.m);
    }
  }
  for (Worker& worker : workers_) {
    worker.current.reserve(own);
    worker.mid.reserve(own);
    worker.v.reserve(v);
    worker.m.reserve(m);
    worker.stem.reserve(stem_floats(shape_.channels, pass.height, pass.width, kernels_.lanes));
  }
  if (common > 0) {
    common_.current.reserve(common);
    common_.mid.reserve(common);
    common_.v.reserve(v);
  }
}

std::size_t Network::peak_bytes() const {
  std::size_t floats = 0;
  for (const Worker& w : workers_) {
    floats += w.current.size() + w.mid.size() + w.v.size() + w.m.size() + w.stem.size();
  }
  for (const Buffer& buffer : stage_) floats += buffer.size();
  floats += common_.current.size() + common_.mid.size() + common_.v.size();
  return floats * sizeof(float) + pool_->peak_bytes();
}

void Network::load(WeightSet& set, const std::vector<ConvParameters>& parameters, bool fold,
                   bool backward) const {
  const std::size_t count = convs_.size();
  set.bias.resize(count);
  set.forward.resize(count);
  set.backward.resize(count);
  set.has_backward = backward;
  std::vector<std::vector<float>> scales(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ConvLayer& conv = convs_[i];
    const ConvParameters& p = parameters[i];
    set.bias[i].reserve(conv.out);
    float* bias = set.bias[i].data();
    if (fold) {
      scales[i].resize(conv.out_real);
      for (int c = 0; c < conv.out_real; ++c) {
        scales[i][c] = p.gamma[c] / std::sqrt(p.running_var[c] + shape_.epsilon);
        bias[c] = p.beta[c] - p.running_mean[c] * scales[i][c];
      }
    } else if (p.bias != nullptr) {
      std::copy_n(p.bias, conv.out_real, bias);
    }
    const auto floats = [&](bool gradient) {
      return i == 0 ? stem_weight_floats(conv.in, conv.out, kernels_.lanes)
                    : kernels_.weight_floats(conv.in, conv.out, conv.kernel, gradient);
    };
    set.forward[i].reserve(floats(false));
    if (backward && i > 0) set.backward[i].reserve(floats(true));
  }
  run_team(threads_, [&](const Team& team) {
    for (std::size_t i = 0; i < count; ++i) {
      const ConvLayer& conv = convs_[i];
      const float* scale = fold ? scales[i].data() : nullptr;
      for (const bool transpose : {false, true}) {
        if (transpose && (!backward || i == 0)) continue;
        float* into = (transpose ? set.backward[i] : set.forward[i]).data();
        if (conv.kernel == 3 && i > 0) {
          kernels_.transform_weights({.in = conv.in_real,
                                      .out = conv.out_real,
                                      .in_padded = conv.in,
                                      .out_padded = conv.out,
                                      .stride = conv.stride,
                                      .transpose = transpose,
                                      .w = parameters[i].weight,
                                      .scale = scale,
                                      .u = into},
                                     team);
        } else if (static_cast<int>(i) % team.size == team.id) {
          if (i == 0) {
            kernels_.stem_weights(parameters[i].weight, conv.out_real, conv.in, conv.out, scale, into);
          } else {
            kernels_.pack(parameters[i].weight, conv.out_real, conv.in_real, conv.out, conv.in, transpose,
                          scale, into);
          }
        }
      }
    }
  });
}

std::unique_ptr<Tape> Network::new_tape(const Pass& pass, bool training) const {
  std::unique_ptr<Tape> tape(new Tape(pool_));
  tape->images = pass.images;
  tape->height = pass.height;
  tape->width = pass.width;
  tape->training = training;
  const int tensors = 1 + 2 * static_cast<int>(blocks_.size());
  for (int t = 0; t < tensors; ++t) {
    const std::size_t floats = pass.images * image_floats(stage_of_tensor(t), pass);
    tape->signs.push_back(pool_->take((floats + 31) / 32));
    if (training) tape->activations.push_back(pool_->take(floats));
  }
  if (training && shape_.batch_norm) {
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      tape->raw.push_back(pool_->take(pass.images * image_floats(stage_of_conv(static_cast<int>(i)), pass)));
      tape->values_per_channel.push_back(static_cast<long>(pass.images) *
                                         stage_size(stage_of_conv(static_cast<int>(i)), pass).pixels());
      tape->mean.push_back(pool_->take(convs_[i].out));
      tape->var.push_back(pool_->take(convs_[i].out));
    }
  }
  return tape;
}

const char* Network::signs(const Tape& tape, int tensor, const Pass& pass, long image) const {
  return reinterpret_cast<const char*>(tape.signs[tensor].data()) +
         image * static_cast<long>(image_floats(stage_of_tensor(tensor), pass) / 8);
}

char* Network::signs(Tape& tape, int tensor, const Pass& pass, long image) const {
  return const_cast<char*>(signs(std::as_const(tape), tensor, pass, image));
}

/// The images of a stage, a chunk at a time: whoever is free takes the next one, because a core that shares
/// its units with a stranger is slower than the other. If the team goes together there is one chunk, of all
/// images, for everybody. No result depends on who computed it.
class Network::Chunks {
 public:
  Chunks(bool joint, int size, int images, std::atomic<long>& taken)
      : joint_(joint), size_(joint ? images : size), images_(images), taken_(taken) {}
  bool next() {
    first_ = joint_ ? first_ + size_ : taken_.fetch_add(size_, std::memory_order_relaxed);
    return first_ < images_;
  }
  long first() const { return first_; }
  int count() const { return static_cast<int>(std::min<long>(size_, images_ - first_)); }

 private:
  bool joint_;
  int size_, images_;
  std::atomic<long>& taken_;
  long first_ = joint_ ? -size_ : 0;
};

/// One stage of all images.
void Network::forward_stage(const Pass& pass, int stage, const float* x, Tape* tape, float* out,
                            const Team& whole) {
  const bool joint = together(stage);
  const Team team = joint ? whole : Team{};
  Worker& worker = workers_[whole.id];
  Worker& space = joint ? common_ : worker;
  const bool keep = tape != nullptr && tape->training;
  const auto signs_of = [&](int tensor, long n) {
    return tape != nullptr ? signs(*tape, tensor, pass, n) : nullptr;
  };
  int begin_block = 0;
  for (int s = 0; s < stage; ++s) begin_block += shape_.blocks[s];
  const int end_block = begin_block + shape_.blocks[stage];
  const Size size = stage_size(stage, pass);
  const auto floats = static_cast<long>(image_floats(stage, pass));
  Chunks chunks(joint, chunk(stage, pass), pass.images, taken_[stage]);
  while (chunks.next()) {
    const long n = chunks.first();
    const int count = chunks.count();
    const auto kept = [&](int tensor, float* otherwise) {
      return keep ? tape->activations[tensor].data() + n * floats : otherwise;
    };
    float* current = kept(2 * begin_block, space.current.data());
    if (stage == 0) {
      const ConvLayer& conv = convs_[0];
      kernels_.stem({.images = count,
                     .height = pass.height,
                     .width = pass.width,
                     .in = conv.in,
                     .out = conv.out,
                     .out_real = conv.out_real,
                     .x = x + n * conv.in * pass.height * pass.width,
                     .w = pass.weights.forward[0].data(),
                     .y = current,
                     .epilogue = {.bias = pass.weights.bias[0].data(),
                                  .activate = true,
                                  .signs_out = signs_of(0, n),
                                  .slope = shape_.slope},
                     .scratch = worker.stem.data()},
                    team);
      if (joint) team.sync();
    }
    for (int b = begin_block; b < end_block; ++b) {
      const BlockLayer& block = blocks_[b];
      const ConvLayer& conv1 = convs_[block.conv1];
      const ConvLayer& conv2 = convs_[block.conv2];
      float* mid = kept(1 + 2 * b, space.mid.data());
      // The result may overwrite the residual: each element is read just before it is written.
      float* stage_end = stage_[stage].data() + n * floats;
      float* result = kept(2 + 2 * b, b + 1 == end_block ? stage_end : space.current.data());
      const Epilogue first_epilogue{.bias = pass.weights.bias[block.conv1].data(),
                                    .activate = true,
                                    .signs_out = signs_of(1 + 2 * b, n),
                                    .slope = shape_.slope};
      if (block.shortcut < 0) {
        kernels_.conv({.images = count,
                       .height = size.height,
                       .width = size.width,
                       .in = conv1.in,
                       .out = conv1.out,
                       .x = current,
                       .u = pass.weights.forward[block.conv1].data(),
                       .y = mid,
                       .epilogue = first_epilogue,
                       .schedule = schedule(layer_of(conv1, stage, pass, false), stage, worker)},
                      team);
      } else {
        const Size from = stage_size(stage - 1, pass);
        const auto from_floats = static_cast<long>(image_floats(stage - 1, pass));
        const float* input = keep ? tape->activations[2 * b].data() : stage_[stage - 1].data();
        current = space.current.data();
        kernels_.down({.images = count,
                       .height = from.height,
                       .width = from.width,
                       .in = conv1.in,
                       .out = conv1.out,
                       .x = input + n * from_floats,
                       .u = pass.weights.forward[block.conv1].data(),
                       .u_shortcut = pass.weights.forward[block.shortcut].data(),
                       .y = mid,
                       .shortcut = current,
                       .epilogue = first_epilogue,
                       .shortcut_bias = pass.weights.bias[block.shortcut].data(),
                       .schedule = schedule(layer_of(conv1, stage, pass, false), stage, worker)},
                      team);
      }
      kernels_.conv({.images = count,
                     .height = size.height,
                     .width = size.width,
                     .in = conv2.in,
                     .out = conv2.out,
                     .x = mid,
                     .u = pass.weights.forward[block.conv2].data(),
                     .y = result,
                     .epilogue = {.bias = pass.weights.bias[block.conv2].data(),
                                  .residual = current,
                                  .activate = true,
                                  .signs_out = signs_of(2 + 2 * b, n),
                                  .slope = shape_.slope},
                     .schedule = schedule(layer_of(conv2, stage, pass, false), stage, worker)},
                    team);
      current = result;
    }
    if (stage == 3) {
      kernels_.pool(current, count, stage_channels(3), features(), size.pixels(), out + n * features(), team);
    }
  }
}

/// The way back through one stage: gradients to the inputs only.
void Network::backward_stage(const Pass& pass, int stage, const Tape& tape, const float* dfeatures, float* dx,
                             const Team& whole) {
  const bool joint = together(stage);
  const Team team = joint ? whole : Team{};
  Worker& worker = workers_[whole.id];
  Worker& space = joint ? common_ : worker;
  int begin_block = 0;
  for (int s = 0; s < stage; ++s) begin_block += shape_.blocks[s];
  const int end_block = begin_block + shape_.blocks[stage];
  const Size size = stage_size(stage, pass);
  const auto floats = static_cast<long>(image_floats(stage, pass));
  Chunks chunks(joint, chunk(stage, pass), pass.images, taken_[stage]);
  while (chunks.next()) {
    const long n = chunks.first();
    const int count = chunks.count();
    // Gradient to the block's result before its activation; updated in place block by block.
    float* gradient = stage_[stage].data() + n * floats;
    if (stage == 3) {
      kernels_.pool_grad(dfeatures + n * features(), count, stage_channels(3), features(), size.pixels(),
                         signs(tape, 2 * end_block, pass, n), shape_.slope, gradient, team);
      if (joint) team.sync();
    }
    for (int b = end_block - 1; b >= begin_block; --b) {
      const BlockLayer& block = blocks_[b];
      const ConvLayer& conv1 = convs_[block.conv1];
      const ConvLayer& conv2 = convs_[block.conv2];
      kernels_.conv_grad({.images = count,
                          .height = size.height,
                          .width = size.width,
                          .in = conv2.out,
                          .out = conv2.in,
                          .x = gradient,
                          .u = pass.weights.backward[block.conv2].data(),
                          .y = space.mid.data(),
                          .epilogue = {.signs_in = signs(tape, 1 + 2 * b, pass, n), .slope = shape_.slope},
                          .schedule = schedule(layer_of(conv2, stage, pass, true), stage, worker)},
                         team);
      Epilogue epilogue{.signs_in = signs(tape, 2 * b, pass, n), .slope = shape_.slope};
      if (block.shortcut < 0) {
        epilogue.residual = gradient;
        kernels_.conv_grad({.images = count,
                            .height = size.height,
                            .width = size.width,
                            .in = conv1.out,
                            .out = conv1.in,
                            .x = space.mid.data(),
                            .u = pass.weights.backward[block.conv1].data(),
                            .y = gradient,
                            .epilogue = epilogue,
                            .schedule = schedule(layer_of(conv1, stage, pass, true), stage, worker)},
                           team);
      } else {
        const Size to = stage_size(stage - 1, pass);
        kernels_.down_grad(
            {.images = count,
             .height = to.height,
             .width = to.width,
             .in = conv1.in,
             .out = conv1.out,
             .g = space.mid.data(),
             .g_shortcut = gradient,
             .u = pass.weights.backward[block.conv1].data(),
             .u_shortcut = pass.weights.backward[block.shortcut].data(),
             .dx = stage_[stage - 1].data() + n * static_cast<long>(image_floats(stage - 1, pass)),
             .epilogue = epilogue,
             .schedule = schedule(layer_of(conv1, stage, pass, true), stage, worker)},
            team);
      }
    }
    if (stage == 0) {
      const ConvLayer& conv = convs_[0];
      kernels_.stem_data_grad({.images = count,
                               .height = pass.height,
                               .width = pass.width,
                               .in = conv.in,
                               .out = conv.out,
                               .out_real = conv.out_real,
                               .g = gradient,
                               .w = pass.weights.forward[0].data(),
                               .dx = dx + n * conv.in * pass.height * pass.width,
                               .scratch = worker.stem.data()},
                              team);
    }
  }
}

void Network::run_forward(const Pass& pass, const float* x, Tape* tape, float* out) {
  prepare(pass, tape == nullptr || !tape->training);
  for (auto& taken : taken_) taken = 0;
  run_team(threads_, [&](const Team& team) {
    for (int stage = 0; stage < 4; ++stage) {
      forward_stage(pass, stage, x, tape, out, team);
      team.sync();
    }
  });
}

void Network::infer(const WeightSet& weights, const float* x, int images, int height, int width, float* out) {
  // Bounded work space: large evaluation batches pass in parts.
  const int part = 128 * threads_;
  for (int n = 0; n < images; n += part) {
    const Pass pass{weights, std::min(part, images - n), height, width};
    run_forward(pass, x + static_cast<long>(n) * shape_.channels * height * width, nullptr,
                out + static_cast<long>(n) * features());
  }
}

std::unique_ptr<Tape> Network::sample(const WeightSet& weights, const float* x, int images, int height,
                                      int width, float* out) {
  const Pass pass{weights, images, height, width};
  std::unique_ptr<Tape> tape = new_tape(pass, false);
  run_forward(pass, x, tape.get(), out);
  return tape;
}

std::unique_ptr<Tape> Network::train(const WeightSet& weights, const std::vector<ConvParameters>& parameters,
                                     const float* x, int images, int height, int width, float* out) {
  const Pass pass{weights, images, height, width};
  std::unique_ptr<Tape> tape = new_tape(pass, true);
  if (shape_.batch_norm) {
    forward_norm(pass, parameters, x, *tape, out);
  } else {
    run_forward(pass, x, tape.get(), out);
  }
  return tape;
}

void Network::input_gradient(const WeightSet& weights, const Tape& tape, const float* dfeatures, float* dx) {
  const Pass pass{weights, tape.images, tape.height, tape.width};
  prepare(pass, true);
  for (auto& taken : taken_) taken = 0;
  run_team(threads_, [&](const Team& team) {
    for (int stage = 3; stage >= 0; --stage) {
      backward_stage(pass, stage, tape, dfeatures, dx, team);
      team.sync();
    }
  });
}

void Network::backward(const WeightSet& weights, const std::vector<ConvParameters>& parameters,
                       const Tape& tape, const float* x, const float* dfeatures,
                       const std::vector<ConvGradients>& gradients, float* dx) {
  const Pass pass{weights, tape.images, tape.height, tape.width};
  if (gradients.empty() && !shape_.batch_norm) {
    input_gradient(weights, tape, dfeatures, dx);
  } else {
    backward_layers(pass, parameters, tape, x, dfeatures, gradients, dx);
  }
}

}  // namespace ebclr::cpu
