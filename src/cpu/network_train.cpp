// Backward pass of training: layer by layer over the whole batch, because the weight gradients of a layer
// want many tiles at once; the team shares each layer.

#include <algorithm>

#include "cpu/batch_norm.h"
#include "cpu/network.h"

namespace ebclr::cpu {

void Network::forward_norm(const Pass& pass, const std::vector<ConvParameters>& parameters, const float* x,
                           Tape& tape, float* out) {
  prepare(pass, false);
  NormScale scale(stage_channels(3)), shortcut_scale(stage_channels(3));
  run_team(threads_, [&](const Team& team) {
    Worker& worker = workers_[team.id];
    const auto measure = [&](NormScale& into, int conv, int pixels) {
      into.measure(kernels_, convs_[conv], parameters[conv], shape_.epsilon, tape.raw[conv].data(),
                   pass.images, pixels, tape.mean[conv].data(), tape.var[conv].data(), team);
    };
    const auto apply = [&](int conv, int tensor, int pixels, const float* residual, bool residual_normed) {
      kernels_.batch_apply({.images = pass.images,
                            .channels = convs_[conv].out,
                            .pixels = pixels,
                            .z = tape.raw[conv].data(),
                            .scale = scale.scale(),
                            .shift = scale.shift(),
                            .residual = residual,
                            .residual_scale = residual_normed ? shortcut_scale.scale() : nullptr,
                            .residual_shift = residual_normed ? shortcut_scale.shift() : nullptr,
                            .slope = shape_.slope,
                            .y = tape.activations[tensor].data(),
                            .signs_out = signs(tape, tensor, pass, 0)},
                           team);
      team.sync();
    };
    kernels_.stem({.images = pass.images,
                   .height = pass.height,
                   .width = pass.width,
                   .in = convs_[0].in,
                   .out = convs_[0].out,
                   .out_real = convs_[0].out_real,
                   .x = x,
                   .w = pass.weights.forward[0].data(),
                   .y = tape.raw[0].data(),
                   .epilogue = {},
                   .scratch = worker.stem.data()},
                  team);
    team.sync();
    measure(scale, 0, pass.height * pass.width);
    apply(0, 0, pass.height * pass.width, nullptr, false);
    for (int b = 0; b < static_cast<int>(blocks_.size()); ++b) {
      const BlockLayer& block = blocks_[b];
      const bool down = block.shortcut >= 0;
      const Size size = stage_size(block.stage, pass);
      const auto conv = [&](int index, int tensor) {
        ConvJob job = conv_job(index, block.stage, pass, pass.images, false, worker);
        job.x = tape.activations[tensor].data();
        job.y = tape.raw[index].data();
        kernels_.conv(job, team);
        team.sync();
      };
      if (!down) {
        conv(block.conv1, 2 * b);
      } else {
        DownJob job = down_job(block, pass, pass.images, worker);
        job.x = tape.activations[2 * b].data();
        job.y = tape.raw[block.conv1].data();
        job.shortcut = tape.raw[block.shortcut].data();
        kernels_.down(job, team);
        team.sync();
        measure(shortcut_scale, block.shortcut, size.pixels());
      }
      measure(scale, block.conv1, size.pixels());
      apply(block.conv1, 1 + 2 * b, size.pixels(), nullptr, false);
      conv(block.conv2, 1 + 2 * b);
      measure(scale, block.conv2, size.pixels());
      apply(block.conv2, 2 + 2 * b, size.pixels(),
            down ? tape.raw[block.shortcut].data() : tape.activations[2 * b].data(), down);
    }
    kernels_.pool(tape.activations.back().data(), pass.images, stage_channels(3), features(),
                  stage_size(3, pass).pixels(), out, team);
  });
}

void Network::backward_layers(const Pass& pass, const std::vector<ConvParameters>& parameters,
                              const Tape& tape, const float* x, const float* dfeatures,
                              const std::vector<ConvGradients>& gradients, float* dx) {
  prepare(pass, false);
  std::size_t v_size = 0, d_size = 0, du_size = 0, activation = 0;
  for (const ConvLayer& conv : convs_) {
    if (&conv == &convs_[0] || conv.kernel == 1) continue;
    const Layer layer = layer_of(conv, stage_of_conv(static_cast<int>(&conv - convs_.data())), pass, false);
    const GradCut cut = kernels_.grad_cut(layer, l2_bytes_);
    const GradSpace space = kernels_.grad_space(layer, cut);
    const std::size_t copies = cut.shared ? 1 : threads_;
    v_size = std::max(v_size, copies * space.v);
    d_size = std::max(d_size, copies * space.d);
    du_size = std::max(du_size, copies * space.du);
  }
  for (int stage = 0; stage < 4; ++stage) {
    activation = std::max(activation, pass.images * image_floats(stage, pass));
  }
  Buffer v = pool_->take(v_size), d = pool_->take(d_size), du = pool_->take(du_size);
  Buffer partial = pool_->take(threads_ * stem_partial_floats(convs_[0].in, convs_[0].out));
  Buffer result = pool_->take(activation), mid = pool_->take(activation), input = pool_->take(activation);
  Buffer before_norm = pool_->take(shape_.batch_norm ? activation : 0);
  NormGradient norm(stage_channels(3));

  run_team(threads_, [&](const Team& team) {
    Worker& worker = workers_[team.id];
    // Gradients before the activation: of a block's result, of its middle, of its input. Every thread keeps
    // its own copy of the three pointers and swaps them alike.
    float *g = result.data(), *g_mid = mid.data(), *g_input = input.data();
    const int last = static_cast<int>(blocks_.size()) - 1;
    kernels_.pool_grad(dfeatures, pass.images, stage_channels(3), features(), stage_size(3, pass).pixels(),
                       signs(tape, 2 + 2 * last, pass, 0), shape_.slope, g, team);
    team.sync();
    // From the gradient of BatchNorm's result to that of its input, in `dz`; without BatchNorm the same.
    const auto through_norm = [&](int conv, int pixels, float* gradient, float* dz) {
      if (!shape_.batch_norm) return gradient;
      norm.run(kernels_, convs_[conv], parameters[conv], shape_.epsilon, tape.raw[conv].data(), pass.images,
               pixels, tape.mean[conv].data(), tape.var[conv].data(), gradient,
               gradients.empty() ? ConvGradients{} : gradients[conv], dz, team);
      return dz;
    };
    for (int b = last; b >= 0; --b) {
      const BlockLayer& block = blocks_[b];
      const ConvLayer& conv1 = convs_[block.conv1];
      const ConvLayer& conv2 = convs_[block.conv2];
      const bool down = block.shortcut >= 0;
      const Size size = stage_size(block.stage, pass), from = stage_size(block.stage - down, pass);
      float* g_conv2 = through_norm(block.conv2, size.pixels(), g, before_norm.data());
      kernels_.conv_grad({.images = pass.images,
                          .height = size.height,
                          .width = size.width,
                          .in = conv2.out,
                          .out = conv2.in,
                          .x = g_conv2,
                          .u = pass.weights.backward[block.conv2].data(),
                          .taps = false,
                          .y = g_mid,
                          .epilogue = {.signs_in = signs(tape, 1 + 2 * b, pass, 0), .slope = shape_.slope},
                          .schedule = schedule(block.conv2, block.stage, pass, true, worker)},
                         team);
      const auto weight_grad = [&](int index, const ConvLayer& conv, const Size& of,
                                   const float* activation_in, const float* gradient) {
        const Layer layer{conv.in, conv.out, conv.stride, of.height, of.width};
        const GradCut cut = kernels_.grad_cut(layer, l2_bytes_);
        const GradSpace space = kernels_.grad_space(layer, cut);
        const std::size_t own = cut.shared ? 0 : team.id;
        WeightGradJob job{.images = pass.images,
                          .height = of.height,
                          .width = of.width,
                          .in = conv.in,
                          .out = conv.out,
                          .in_real = conv.in_real,
                          .out_real = conv.out_real,
                          .stride = conv.stride,
                          .x = activation_in,
                          .g = gradient,
                          .shared = cut.shared,
                          .block = cut.block,
                          .v = v.data() + own * space.v,
                          .d = d.data() + own * space.d,
                          .du = du.data(),
                          .dw = gradients[index].weight,
                          .db = gradients[index].bias};
        if (conv.stride == 2) {
          job.g_shortcut = g;
          job.dw_shortcut = gradients[block.shortcut].weight;
          job.db_shortcut = gradients[block.shortcut].bias;
        }
        kernels_.weight_grad(job, team);
        team.sync();  // the next one reuses du
      };
      if (!gradients.empty()) {
        weight_grad(block.conv2, conv2, size, tape.activations[1 + 2 * b].data(), g_conv2);
      }
      team.sync();  // g_mid is complete
      through_norm(block.conv1, size.pixels(), g_mid, g_mid);
      if (down) through_norm(block.shortcut, size.pixels(), g, g);
      if (!gradients.empty()) {
        weight_grad(block.conv1, conv1, from, tape.activations[2 * b].data(), g_mid);
      }
      Epilogue epilogue{.signs_in = signs(tape, 2 * b, pass, 0), .slope = shape_.slope};
      if (!down) {
        epilogue.residual = g;
        kernels_.conv_grad({.images = pass.images,
                            .height = size.height,
                            .width = size.width,
                            .in = conv1.out,
                            .out = conv1.in,
                            .x = g_mid,
                            .u = pass.weights.backward[block.conv1].data(),
                            .y = g_input,
                            .epilogue = epilogue,
                            .schedule = schedule(block.conv1, block.stage, pass, true, worker)},
                           team);
      } else {
        kernels_.down_grad({.images = pass.images,
                            .height = from.height,
                            .width = from.width,
                            .in = conv1.in,
                            .out = conv1.out,
                            .g = g_mid,
                            .g_shortcut = g,
                            .u = pass.weights.backward[block.conv1].data(),
                            .u_shortcut = pass.weights.backward[block.shortcut].data(),
                            .dx = g_input,
                            .epilogue = epilogue,
                            .schedule = schedule(block.conv1, block.stage, pass, true, worker)},
                           team);
      }
      std::swap(g, g_input);
      team.sync();
    }
    through_norm(0, pass.height * pass.width, g, g);
    StemGradJob job{.images = pass.images,
                    .height = pass.height,
                    .width = pass.width,
                    .in = convs_[0].in,
                    .out = convs_[0].out,
                    .out_real = convs_[0].out_real,
                    .g = g,
                    .w = pass.weights.forward[0].data(),
                    .dx = dx,
                    .x = x,
                    .partial = partial.data(),
                    .scratch = worker.stem.data()};
    if (!gradients.empty()) {
      job.dw = gradients[0].weight;
      job.db = gradients[0].bias;
      kernels_.stem_weight_grad(job, team);
    }
    if (dx != nullptr) kernels_.stem_data_grad(job, team);
  });
  for (Buffer* buffer : {&v, &d, &du, &partial, &result, &mid, &input, &before_norm})
    pool_->give(std::move(*buffer));
}

}  // namespace ebclr::cpu
