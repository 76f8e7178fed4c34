// Passes of training that go layer by layer over the whole batch, the team sharing each layer: the way there
// with BatchNorm, which wants the statistics of all images, and the way back, because the weight gradients of
// a layer want many tiles at once.

#include <algorithm>

#include "cpu/batch_norm.h"
#include "cpu/network.h"

namespace ebclr::cpu {

/// The way there through the whole network with the batch's own statistics: layer by layer, shared by a team.
class Network::NormForward {
 public:
  NormForward(Network& network, const Pass& pass, const std::vector<ConvParameters>& parameters,
              const float* x, Tape& tape, float* out, const BatchSum& sum)
      : n_(network),
        pass_(pass),
        parameters_(parameters),
        x_(x),
        tape_(tape),
        out_(out),
        sum_(sum),
        scale_(network.stage_channels(3)),
        shortcut_scale_(network.stage_channels(3)),
        before_pool_(network.pool_->take(network.shape_.stem.pool ? tape.raw[0].size() : 0)) {}

  ~NormForward() { n_.pool_->give(std::move(before_pool_)); }
  NormForward(const NormForward&) = delete;
  NormForward& operator=(const NormForward&) = delete;

  void run(const Team& team) {
    stem(team);
    for (int b = 0; b < static_cast<int>(n_.blocks_.size()); ++b) block(b, team);
    n_.kernels_.pool(tape_.activations.back().data(), pass_.images, n_.stage_channels(3), n_.features(),
                     n_.stage_size(3, pass_).pixels(), out_, team);
  }

  /// Throws what a sum over processes has thrown.
  void rethrow() const { sum_.rethrow(); }

 private:
  /// Images through the stem, its BatchNorm and, where there is one, its pooling. Ends with a sync, as do the
  /// steps below.
  void stem(const Team& team) {
    StemJob job = n_.stem_job(pass_, pass_.images, n_.workers_[team.id]);
    job.x = x_;
    job.y = tape_.raw[0].data();
    n_.kernels_.stem(job, team);
    team.sync();
    const Size size = n_.stem_size(pass_);
    measure(scale_, 0, size, team);
    if (n_.shape_.stem.pool) {
      pool_stem(size, team);
    } else {
      apply(0, 0, size, {}, team);
    }
  }

  /// Normalised first: with a negative scale the largest value is another one.
  void pool_stem(const Size& size, const Team& team) {
    // Scale and shift alone: an activation of slope 1 is none.
    NormJob job = norm_job(0, size);
    job.slope = 1;
    job.y = before_pool_.data();
    n_.kernels_.batch_apply(job, team);
    team.sync();
    n_.kernels_.max_pool({.images = pass_.images,
                          .height = size.height,
                          .width = size.width,
                          .channels = n_.convs_[0].out,
                          .x = before_pool_.data(),
                          .y = tape_.activations[0].data(),
                          .origin = tape_.origin.data(),
                          .epilogue = {.activate = true, .signs_out = signs(0), .slope = n_.shape_.slope}},
                         team);
    team.sync();
  }

  void block(int b, const Team& team) {
    const BlockLayer& block = n_.blocks_[b];
    const Size size = n_.stage_size(block.stage, pass_);
    const bool down = block.shortcut >= 0;
    if (!down) {
      conv(block.conv1, block.stage, 2 * b, team);
    } else {
      DownJob job = n_.down_job(block, pass_, pass_.images, n_.workers_[team.id]);
      job.x = tape_.activations[2 * b].data();
      job.y = tape_.raw[block.conv1].data();
      job.shortcut = tape_.raw[block.shortcut].data();
      n_.kernels_.down(job, team);
      team.sync();
      measure(shortcut_scale_, block.shortcut, size, team);
    }
    measure(scale_, block.conv1, size, team);
    apply(block.conv1, 1 + 2 * b, size, {}, team);
    conv(block.conv2, block.stage, 1 + 2 * b, team);
    measure(scale_, block.conv2, size, team);
    apply(block.conv2, 2 + 2 * b, size,
          down ? Residual{tape_.raw[block.shortcut].data(), shortcut_scale_.scale(), shortcut_scale_.shift()}
               : Residual{tape_.activations[2 * b].data()},
          team);
  }

  /// A 3x3 convolution of an activation, before its BatchNorm.
  void conv(int index, int stage, int tensor, const Team& team) {
    ConvJob job = n_.conv_job(index, stage, pass_, pass_.images, false, n_.workers_[team.id]);
    job.x = tape_.activations[tensor].data();
    job.y = tape_.raw[index].data();
    n_.kernels_.conv(job, team);
    team.sync();
  }

  /// The batch's statistics after a convolution, and the scale and shift that they make.
  void measure(NormScale& into, int conv, const Size& size, const Team& team) {
    into.measure(n_.kernels_, n_.convs_[conv], parameters_[conv], n_.shape_.epsilon, tape_.raw[conv].data(),
                 pass_.images, size.pixels(), tape_.mean[conv].data(), tape_.var[conv].data(),
                 tape_.values_per_channel[conv], sum_, team);
  }

  /// What is added before the activation; with a scale and a shift of its own where it has a BatchNorm.
  struct Residual {
    const float *data = nullptr, *scale = nullptr, *shift = nullptr;
  };

  /// BatchNorm as measured, residual and activation: from a convolution's result to a tensor of the tape.
  void apply(int conv, int tensor, const Size& size, const Residual& residual, const Team& team) {
    NormJob job = norm_job(conv, size);
    job.residual = residual.data;
    job.residual_scale = residual.scale;
    job.residual_shift = residual.shift;
    job.slope = n_.shape_.slope;
    job.y = tape_.activations[tensor].data();
    job.signs_out = signs(tensor);
    n_.kernels_.batch_apply(job, team);
    team.sync();
  }

  NormJob norm_job(int conv, const Size& size) const {
    return {.images = pass_.images,
            .channels = n_.convs_[conv].out,
            .pixels = size.pixels(),
            .z = tape_.raw[conv].data(),
            .scale = scale_.scale(),
            .shift = scale_.shift()};
  }

  char* signs(int tensor) { return n_.signs(tape_, tensor, pass_, 0); }

  Network& n_;
  const Pass& pass_;
  const std::vector<ConvParameters>& parameters_;
  const float* x_;
  Tape& tape_;
  float* out_;
  TeamSum sum_;
  NormScale scale_, shortcut_scale_;
  Buffer before_pool_;
};

void Network::forward_norm(const Pass& pass, const std::vector<ConvParameters>& parameters, const float* x,
                           Tape& tape, float* out, const BatchSum& sum) {
  prepare(pass, false);
  NormForward way(*this, pass, parameters, x, tape, out, sum);
  run_team(threads_, [&](const Team& team) { way.run(team); });
  way.rethrow();
}

/// The way back through the whole network with weight gradients: layer by layer, shared by a team.
class Network::Backward {
 public:
  Backward(Network& network, const Pass& pass, const std::vector<ConvParameters>& parameters,
           const Tape& tape, const float* x, const std::vector<ConvGradients>& gradients, float* dx,
           const BatchSum& sum)
      : n_(network),
        pass_(pass),
        parameters_(parameters),
        tape_(tape),
        x_(x),
        gradients_(gradients),
        dx_(dx),
        norm_(network.stage_channels(3)),
        sum_(sum) {
    std::size_t v = 0, d = 0, du = 0, activation = 0;
    const std::size_t parts = grad_parts(n_.threads_);
    for (std::size_t i = 1; i < n_.convs_.size(); ++i) {
      const ConvLayer& conv = n_.convs_[i];
      if (conv.kernel == 1) continue;
      const Layer layer = n_.layer_of(conv, n_.stage_of_conv(static_cast<int>(i)), pass, false);
      const GradCut cut = n_.kernels_.grad_cut(layer, n_.l2_bytes_);
      const GradSpace space = n_.kernels_.grad_space(layer, cut);
      v = std::max(v, (cut.shared ? 1 : n_.threads_) * space.v);
      d = std::max(d, (cut.shared ? 1 : n_.threads_) * space.d);
      du = std::max(du, (cut.shared ? 1 : parts) * space.du);
    }
    for (int stage = 0; stage < 4; ++stage) {
      activation = std::max(activation, pass.images * n_.image_floats(stage, pass));
    }
    const std::size_t stem =
        static_cast<std::size_t>(pass.images) * n_.convs_[0].out * n_.stem_size(pass).pixels();
    const bool norm = n_.shape_.batch_norm;
    const std::size_t sizes[kBuffers] = {
        v,
        d,
        du,
        parts * stem_partial_floats(n_.shape_.stem, n_.convs_[0].in, n_.convs_[0].out),
        activation,
        activation,
        activation,
        norm ? activation : 0,
        norm && n_.shape_.stem.pool ? stem : 0};
    for (int i = 0; i < kBuffers; ++i) buffers_[i] = n_.pool_->take(sizes[i]);
  }

  ~Backward() {
    for (Buffer& buffer : buffers_) n_.pool_->give(std::move(buffer));
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  void run(const float* dfeatures, const Team& team) {
    // Gradients before the activation: of a block's result, of its middle, of its input.
    Gradients g{data(kResult), data(kMid), data(kInput)};
    const int last = static_cast<int>(n_.blocks_.size()) - 1;
    n_.kernels_.pool_grad(dfeatures, pass_.images, n_.stage_channels(3), n_.features(),
                          n_.stage_size(3, pass_).pixels(), signs(2 + 2 * last), n_.shape_.slope, g.result,
                          team);
    team.sync();
    for (int b = last; b >= 0; --b) {
      block(b, g, team);
      std::swap(g.result, g.input);
      team.sync();
    }
    stem(g.result, team);
  }

  /// Throws what a sum over processes has thrown.
  void rethrow() const { sum_.rethrow(); }

 private:
  struct Gradients {
    float *result, *mid, *input;
  };
  enum { kV, kD, kDu, kPartial, kResult, kMid, kInput, kBeforeNorm, kBeforePool, kBuffers };

  float* data(int buffer) { return buffers_[buffer].data(); }
  const char* signs(int tensor) const { return n_.signs(tape_, tensor, pass_, 0); }

  /// From the gradient of BatchNorm's result to that of its input, in `dz`; without BatchNorm the same.
  float* through_norm(int conv, int pixels, float* gradient, float* dz, const Team& team) {
    if (!n_.shape_.batch_norm) return gradient;
    norm_.run(n_.kernels_, n_.convs_[conv], parameters_[conv], n_.shape_.epsilon, tape_.raw[conv].data(),
              pass_.images, pixels, tape_.mean[conv].data(), tape_.var[conv].data(),
              tape_.values_per_channel[conv], gradient,
              gradients_.empty() ? ConvGradients{} : gradients_[conv], dz, sum_, team);
    return dz;
  }

  /// Weight gradients of one convolution between `in` and the gradient of its result; begins and ends with a
  /// sync.
  void weights(int index, const Size& size, const float* in, const float* gradient, const BlockLayer& block,
               const float* g_shortcut, const Team& team) {
    if (gradients_.empty()) return;
    const ConvLayer& conv = n_.convs_[index];
    const Layer layer{conv.in, conv.out, conv.stride, size.height, size.width};
    const GradCut cut = n_.kernels_.grad_cut(layer, n_.l2_bytes_);
    const GradSpace space = n_.kernels_.grad_space(layer, cut);
    const std::size_t own = cut.shared ? 0 : team.id;
    WeightGradJob job{.images = pass_.images,
                      .height = size.height,
                      .width = size.width,
                      .in = conv.in,
                      .out = conv.out,
                      .in_real = conv.in_real,
                      .out_real = conv.out_real,
                      .stride = conv.stride,
                      .x = in,
                      .g = gradient,
                      .shared = cut.shared,
                      .block = cut.block,
                      .v = data(kV) + own * space.v,
                      .d = data(kD) + own * space.d,
                      .du = data(kDu),
                      .dw = gradients_[index].weight,
                      .db = gradients_[index].bias};
    if (conv.stride == 2) {
      job.g_shortcut = g_shortcut;
      job.dw_shortcut = gradients_[block.shortcut].weight;
      job.db_shortcut = gradients_[block.shortcut].bias;
    }
    team.sync();
    n_.kernels_.weight_grad(job, team);
    team.sync();
  }

  /// Back through one block, from g.result to g.input.
  void block(int b, Gradients& g, const Team& team) {
    const BlockLayer& block = n_.blocks_[b];
    Worker& worker = n_.workers_[team.id];
    const bool down = block.shortcut >= 0;
    const Size size = n_.stage_size(block.stage, pass_), from = n_.stage_size(block.stage - down, pass_);
    float* g_conv2 = through_norm(block.conv2, size.pixels(), g.result, data(kBeforeNorm), team);
    ConvJob second = n_.conv_job(block.conv2, block.stage, pass_, pass_.images, true, worker);
    second.x = g_conv2;
    second.y = g.mid;
    second.epilogue = {.signs_in = signs(1 + 2 * b), .slope = n_.shape_.slope};
    n_.kernels_.conv_grad(second, team);
    weights(block.conv2, size, tape_.activations[1 + 2 * b].data(), g_conv2, block, nullptr, team);
    team.sync();  // g.mid is complete
    through_norm(block.conv1, size.pixels(), g.mid, g.mid, team);
    if (down) through_norm(block.shortcut, size.pixels(), g.result, g.result, team);
    weights(block.conv1, from, tape_.activations[2 * b].data(), g.mid, block, g.result, team);
    const Epilogue epilogue{.signs_in = signs(2 * b), .slope = n_.shape_.slope};
    if (!down) {
      ConvJob first = n_.conv_job(block.conv1, block.stage, pass_, pass_.images, true, worker);
      first.x = g.mid;
      first.y = g.input;
      first.epilogue = epilogue;
      first.epilogue.residual = g.result;
      n_.kernels_.conv_grad(first, team);
    } else {
      DownGradJob first = n_.down_grad_job(block, pass_, pass_.images, worker);
      first.g = g.mid;
      first.g_shortcut = g.result;
      first.dx = g.input;
      first.epilogue = epilogue;
      n_.kernels_.down_grad(first, team);
    }
  }

  /// Back through the stem, to its weights and to the images.
  void stem(float* g, const Team& team) {
    StemGradJob job = n_.stem_grad_job(pass_, pass_.images, tape_, n_.workers_[team.id]);
    job.g = g;
    job.dx = dx_;
    job.x = x_;
    job.partial = data(kPartial);
    const Size size = n_.stem_size(pass_);
    if (n_.shape_.batch_norm && n_.shape_.stem.pool) {
      n_.kernels_.max_pool_grad({.images = pass_.images,
                                 .height = size.height,
                                 .width = size.width,
                                 .channels = n_.convs_[0].out,
                                 .g = g,
                                 .dx = data(kBeforePool),
                                 .origin = job.origin,
                                 .epilogue = {}},
                                team);
      team.sync();
      job.origin = nullptr;
      job.g = g = data(kBeforePool);
    }
    through_norm(0, size.pixels(), g, g, team);
    if (!gradients_.empty()) {
      job.dw = gradients_[0].weight;
      job.db = gradients_[0].bias;
      n_.kernels_.stem_weight_grad(job, team);
    }
    if (dx_ != nullptr) n_.kernels_.stem_data_grad(job, team);
  }

  Network& n_;
  const Pass& pass_;
  const std::vector<ConvParameters>& parameters_;
  const Tape& tape_;
  const float* x_;
  const std::vector<ConvGradients>& gradients_;
  float* dx_;
  NormGradient norm_;
  TeamSum sum_;
  Buffer buffers_[kBuffers];
};

void Network::train_backward(const Pass& pass, const std::vector<ConvParameters>& parameters,
                             const Tape& tape, const float* x, const float* dfeatures,
                             const std::vector<ConvGradients>& gradients, float* dx, const BatchSum& sum) {
  prepare(pass, false);
  Backward way(*this, pass, parameters, tape, x, gradients, dx, sum);
  run_team(
      threads_, [&](const Team& team) { way.run(dfeatures, team); },
      kernels_.sums_follow_threads ? TeamSize::kFixed : TeamSize::kMayShrink);
  way.rethrow();
}

}  // namespace ebclr::cpu
