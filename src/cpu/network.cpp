#include "cpu/network.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace ebclr::cpu {
namespace {

/// Passes of at most so many tiles in a stage read its weights as taps. Stage 4 of width 64, there and back,
/// one thread of a Zen 4: 4 tiles 11.1 ms instead of 14.5, 8 tiles 21.7 instead of 15.5 (docs/engine.md).
constexpr long kTapTiles = 4;

const WeightSet& no_weights() {
  static const WeightSet none;
  return none;
}

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::size_t l2_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : std::size_t{512} << 10;
}

std::size_t l3_bytes() {
  // Not sysconf: for processors whose cores share their cache in groups it adds up all groups.
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");  // "32768K"
  std::size_t size = 0;
  char unit = 0;
  if (file >> size >> unit && size > 0 && (unit == 'K' || unit == 'M'))
    return size << (unit == 'K' ? 10 : 20);
  return 16 * l2_bytes();
}

std::string unsupported(const NetworkShape& shape, int height, int width) {
  if (shape.channels < 1 || shape.channels > 4) {
    return "images have " + std::to_string(shape.channels) + " channels, the kernels take 1 to 4";
  }
  if (shape.width < 8 || shape.width % 8 != 0) {
    return "width " + std::to_string(shape.width) + " is not a multiple of 8";
  }
  if (height < 1 || width < 1) return "empty images";
  if (shape.stem.out(height) < 1 || shape.stem.out(width) < 1) return "images smaller than the stem's window";
  return "";
}

Tape::~Tape() {
  for (auto* list : {&signs, &activations, &raw, &mean, &var}) {
    for (Buffer& buffer : *list) pool_->give(std::move(buffer));
  }
  pool_->give(std::move(origin));
}

Network::Network(const NetworkShape& shape, const Kernels& kernels, int threads, std::size_t cache_bytes)
    : shape_(shape),
      kernels_(kernels),
      threads_(std::max(1, threads)),
      l2_bytes_(cache_bytes > 0 ? cache_bytes : l2_bytes()),
      l3_bytes_(cache_bytes > 0 ? 16 * cache_bytes : l3_bytes()),
      pool_(std::make_shared<BufferPool>()),
      workers_(threads_) {
  const auto layer = [&](int in, int out, int kernel, int stride) {
    convs_.push_back({round_up(in, kernels.lanes), round_up(out, kernels.lanes), in, out, kernel, stride});
    return static_cast<int>(convs_.size()) - 1;
  };
  layer(shape.channels, shape.width, shape.stem.kernel, shape.stem.stride);
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
  Size size{shape_.stem.pooled(pass.height), shape_.stem.pooled(pass.width)};
  for (int s = 0; s < stage; ++s) size = {(size.height + 1) / 2, (size.width + 1) / 2};
  return size;
}

Network::Size Network::stem_size(const Pass& pass) const {
  return {shape_.stem.out(pass.height), shape_.stem.out(pass.width)};
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

long Network::stage_tiles(int stage, const Pass& pass) const {
  const Size size = stage_size(stage, pass);
  return static_cast<long>(pass.images) * ((size.height + 3) / 4) * ((size.width + 3) / 4);
}

/// Of the transformed weights of one of the stage's convolutions.
std::size_t Network::weight_bytes(int stage) const {
  const int channels = stage_channels(stage);
  return kernels_.weight_floats(channels, channels, 3, false) * sizeof(float);
}

/// Channels where no core can keep the weights near it, or where there are so few tiles that reading weights
/// is most of the work: each thread reads only its part. Tiles where there are too few images to go round.
Network::Share Network::share(int stage, const Pass& pass) const {
  if (threads_ == 1) return Share::kImages;
  const bool divisible = stage_channels(stage) / kernels_.lanes >= 2 * threads_;
  const bool few = few_tiles(stage, pass) && weight_bytes(stage) > l2_bytes_ / 2;
  if (weight_bytes(stage) > 8 * l2_bytes_ || (few && divisible)) return Share::kChannels;
  const long rounds = (pass.images + threads_ - 1) / threads_;
  return rounds * threads_ * 5 > 6L * pass.images && rounds < 8 ? Share::kTiles : Share::kImages;
}

/// So few that weights cost more than what is done with them.
bool Network::few_tiles(int stage, const Pass& pass) const {
  return stage_tiles(stage, pass) <= 32;
}

/// Layers whose weights leave L2 with every pass.
bool Network::has_taps(const ConvLayer& conv, bool gradient) const {
  return conv.kernel == 3 && conv.stride == 1 && &conv != &convs_[0] &&
         (gradient ? kernels_.gradient_taps : kernels_.forward_taps) &&
         kernels_.weight_floats(conv.in, conv.out, 3, false) * sizeof(float) > l2_bytes_ / 2;
}

bool Network::wants_taps(int images, int height, int width) const {
  std::size_t bytes = 0;
  for (const ConvLayer& conv : convs_) {
    if (conv.kernel == 3) bytes += 2 * kernels_.weight_floats(conv.in, conv.out, 3, false) * sizeof(float);
  }
  // As long as all weights stay in the cores' common cache, it is as quick to read them there.
  return bytes > l3_bytes_ / 2 && stage_tiles(3, {no_weights(), images, height, width}) <= kTapTiles;
}

bool Network::reads_taps(int conv, int stage, const Pass& pass, bool gradient) const {
  return pass.weights.has_taps && has_taps(convs_[conv], gradient) && stage_tiles(stage, pass) <= kTapTiles;
}

/// Transformed weights of a convolution.
const float* Network::weights_of(int conv, const Pass& pass, bool gradient) const {
  return (gradient ? pass.weights.backward : pass.weights.forward)[conv].data();
}

Schedule Network::schedule(int conv, int stage, const Pass& pass, bool gradient) const {
  Schedule s = kernels_.cut(layer_of(convs_[conv], stage, pass, gradient), l2_bytes_);
  s.shared = share(stage, pass) == Share::kChannels;
  return s;
}

Schedule Network::schedule(int conv, int stage, const Pass& pass, bool gradient, Worker& worker) {
  Schedule s = schedule(conv, stage, pass, gradient);
  s.v = (s.shared ? common_ : worker).v.data();
  s.m = worker.m.data();
  return s;
}

void Network::prepare(const Pass& pass, bool stage_buffers) {
  std::size_t own = 0, common = 0, v = 0, m = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const std::size_t floats = image_floats(stage, pass);
    if (share(stage, pass) != Share::kImages) {
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
      const int index = static_cast<int>(i), stage = stage_of_conv(index);
      const Space space =
          kernels_.space(layer_of(conv, stage, pass, gradient), schedule(index, stage, pass, gradient));
      v = std::max(v, space.v);
      m = std::max(m, space.m);
    }
  }
  const std::size_t raw = static_cast<std::size_t>(convs_[0].out) * stem_size(pass).pixels();
  for (Worker& worker : workers_) {
    worker.current.reserve(own);
    worker.mid.reserve(own);
    worker.v.reserve(v);
    worker.m.reserve(m);
    worker.stem.reserve(stem_floats(shape_.stem, shape_.channels, pass.height, pass.width, kernels_.lanes));
    if (shape_.stem.pool) worker.raw.reserve(raw);
  }
  if (common > 0) {
    common_.current.reserve(common);
    common_.mid.reserve(common);
    common_.v.reserve(v);
    if (shape_.stem.pool) common_.raw.reserve(raw);
  }
}

void Network::load(WeightSet& set, const std::vector<ConvParameters>& parameters,
                   const LoadOptions& options) const {
  const std::size_t count = convs_.size();
  for (auto* list : {&set.bias, &set.forward, &set.backward, &set.forward_taps, &set.backward_taps}) {
    list->resize(count);
  }
  set.has_backward = set.has_taps = false;  // until memory for them was found
  std::vector<std::vector<float>> scales(count);
  for (std::size_t i = 0; i < count; ++i) {
    const ConvLayer& conv = convs_[i];
    const ConvParameters& p = parameters[i];
    set.bias[i].reserve(conv.out);
    float* bias = set.bias[i].data();
    if (options.fold) {
      scales[i].resize(conv.out_real);
      for (int c = 0; c < conv.out_real; ++c) {
        scales[i][c] = p.gamma[c] / std::sqrt(p.running_var[c] + shape_.epsilon);
        bias[c] = p.beta[c] - p.running_mean[c] * scales[i][c];
      }
    } else if (p.bias != nullptr) {
      std::copy_n(p.bias, conv.out_real, bias);
    }
    const auto floats = [&](bool gradient) {
      return i == 0 ? stem_weight_floats(shape_.stem, conv.in, conv.out)
                    : kernels_.weight_floats(conv.in, conv.out, conv.kernel, gradient);
    };
    set.forward[i].reserve(floats(false));
    if (options.backward && i > 0) set.backward[i].reserve(floats(true));
    if (!options.taps) continue;
    if (has_taps(conv, false)) set.forward_taps[i].reserve(tap_floats(conv.in, conv.out));
    if (options.backward && has_taps(conv, true)) set.backward_taps[i].reserve(tap_floats(conv.in, conv.out));
  }
  set.has_backward = options.backward;
  set.has_taps = options.taps;
  run_team(threads_, [&](const Team& team) {
    for (std::size_t i = 0; i < count; ++i) {
      const float* scale = options.fold ? scales[i].data() : nullptr;
      for (const bool transpose : {false, true}) {
        if (!transpose || (options.backward && i > 0))
          load_conv(set, i, parameters[i], scale, transpose, team);
      }
    }
  });
}

/// One convolution's weights, for itself or for its data gradient.
void Network::load_conv(WeightSet& set, std::size_t i, const ConvParameters& parameters, const float* scale,
                        bool transpose, const Team& team) const {
  const ConvLayer& conv = convs_[i];
  float* into = (transpose ? set.backward[i] : set.forward[i]).data();
  if (conv.kernel == 3 && i > 0) {
    float* taps = (transpose ? set.backward_taps[i] : set.forward_taps[i]).data();
    kernels_.transform_weights({.in = conv.in_real,
                                .out = conv.out_real,
                                .in_padded = conv.in,
                                .out_padded = conv.out,
                                .stride = conv.stride,
                                .transpose = transpose,
                                .w = parameters.weight,
                                .scale = scale,
                                .u = into,
                                .taps = set.has_taps && has_taps(conv, transpose) ? taps : nullptr},
                               team);
  } else if (static_cast<int>(i) % team.size == team.id) {
    if (i == 0) {
      kernels_.stem_weights(shape_.stem, parameters.weight, conv.out_real, conv.in, conv.out, scale, into);
    } else {
      kernels_.pack(parameters.weight, conv.out_real, conv.in_real, conv.out, conv.in, transpose, scale,
                    into);
    }
  }
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
  if (shape_.stem.pool) tape->origin = pool_->take(pass.images * image_floats(0, pass));
  if (training && shape_.batch_norm) {
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      const long pixels =
          (i == 0 ? stem_size(pass) : stage_size(stage_of_conv(static_cast<int>(i)), pass)).pixels();
      tape->values_per_channel.push_back(pass.images * pixels);
      tape->raw.push_back(pool_->take(static_cast<std::size_t>(pass.images * pixels * convs_[i].out)));
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

void Network::run_forward(const Pass& pass, const float* x, Tape* tape, float* out) {
  prepare(pass, tape == nullptr || !tape->training);
  for (auto& taken : taken_there_) taken = 0;
  run_team(threads_, [&](const Team& team) { forward_stages(pass, x, tape, out, team); });
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
                                     const float* x, int images, int height, int width, float* out,
                                     const BatchSum& sum) {
  const Pass pass{weights, images, height, width};
  std::unique_ptr<Tape> tape = new_tape(pass, true);
  if (shape_.batch_norm) {
    forward_norm(pass, parameters, x, *tape, out, sum);
  } else {
    run_forward(pass, x, tape.get(), out);
  }
  return tape;
}

void Network::input_gradient(const WeightSet& weights, const Tape& tape, const float* dfeatures, float* dx) {
  const Pass pass{weights, tape.images, tape.height, tape.width};
  prepare(pass, true);
  for (auto& taken : taken_back_) taken = 0;
  run_team(threads_, [&](const Team& team) { backward_stages(pass, tape, dfeatures, dx, team); });
}

void Network::backward(const WeightSet& weights, const std::vector<ConvParameters>& parameters,
                       const Tape& tape, const float* x, const float* dfeatures,
                       const std::vector<ConvGradients>& gradients, float* dx, const BatchSum& sum) {
  const Pass pass{weights, tape.images, tape.height, tape.width};
  if (gradients.empty() && !shape_.batch_norm) {
    input_gradient(weights, tape, dfeatures, dx);
  } else {
    train_backward(pass, parameters, tape, x, dfeatures, gradients, dx, sum);
  }
}

}  // namespace ebclr::cpu
