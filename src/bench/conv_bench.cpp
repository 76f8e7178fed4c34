#include <fmt/format.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "bench/engine_bench.h"
#include "core/error.h"
#include "cpu/buffer.h"
#include "cpu/cost.h"
#include "cpu/kernels.h"
#include "cpu/network.h"

namespace ebclr::bench {
namespace {

using torch::Tensor;

/// Planar images to panels of `lanes` channels and back; channels must be a multiple of lanes.
Tensor to_panels(const Tensor& x, int64_t lanes) {
  return x.view({x.size(0), x.size(1) / lanes, lanes, x.size(2), x.size(3)})
      .permute({0, 1, 3, 4, 2})
      .contiguous();
}
Tensor from_panels(const Tensor& x) {
  return x.permute({0, 1, 4, 2, 3})
      .contiguous()
      .view({x.size(0), x.size(1) * x.size(4), x.size(2), x.size(3)});
}
/// A tensor's values at an aligned address.
cpu::Buffer aligned(const Tensor& t) {
  cpu::Buffer buffer(static_cast<size_t>(t.numel()));
  std::copy_n(t.data_ptr<float>(), t.numel(), buffer.data());
  return buffer;
}
double distance(const Tensor& a, const Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

struct Layer {
  int64_t in, out, size, stride;
};

/// One 3x3 layer in all three passes. With stride 2 the kernels compute the 1x1 shortcut besides; torch's
/// side does too.
class LayerBench {
 public:
  LayerBench(const Layer& layer, const BenchOptions& o, const cpu::Kernels& k, int threads)
      : layer_(layer), o_(o), k_(k), threads_(threads) {
    const int64_t out_size = (layer.size + layer.stride - 1) / layer.stride;
    x_ = torch::randn({o.batch, layer.in, layer.size, layer.size});
    w_ = torch::randn({layer.out, layer.in, 3, 3});
    ws_ = torch::randn({layer.out, layer.in, 1, 1});
    g_ = torch::randn({o.batch, layer.out, out_size, out_size});
    px_ = aligned(to_panels(x_, k.lanes));
    pg_ = aligned(to_panels(g_, k.lanes));
    for (const bool transpose : {false, true}) {
      cpu::Buffer& u = transpose ? back_ : forward_;
      u = cpu::Buffer(k.weight_floats(in(), out(), 3, transpose));
      cpu::run_team(threads, [&](const cpu::Team& team) {
        k.transform_weights({.in = in(),
                             .out = out(),
                             .in_padded = in(),
                             .out_padded = out(),
                             .stride = static_cast<int>(layer.stride),
                             .transpose = transpose,
                             .w = w_.data_ptr<float>(),
                             .u = u.data()},
                            team);
      });
      cpu::Buffer& us = transpose ? shortcut_back_ : shortcut_;
      us = cpu::Buffer(k.weight_floats(in(), out(), 1, transpose));
      k.pack(ws_.data_ptr<float>(), out(), in(), out(), in(), transpose, nullptr, us.data());
    }
    y_ = cpu::Buffer(pg_.size());
    ys_ = cpu::Buffer(pg_.size());
    dx_ = cpu::Buffer(px_.size());
    const cpu::Space there = k.space(forward_layer(), cut(forward_layer())),
                     back = k.space(back_layer(), cut(back_layer()));
    for (int i = 0; i < threads; ++i) {
      v_.emplace_back(std::max(there.v, back.v));
      m_.emplace_back(std::max(there.m, back.m));
    }
    grad_cut_ = k.grad_cut(forward_layer(), cpu::l2_bytes());
    grad_space_ = k.grad_space(forward_layer(), grad_cut_);
    const size_t copies = grad_cut_.shared ? 1 : static_cast<size_t>(threads);
    v_all_ = cpu::Buffer(copies * grad_space_.v);
    d_all_ = cpu::Buffer(copies * grad_space_.d);
    const auto parts = static_cast<size_t>(cpu::grad_parts(threads));
    du_ = cpu::Buffer((grad_cut_.shared ? 1 : parts) * grad_space_.du);
    dw_ = torch::empty_like(w_);
    dws_ = torch::empty_like(ws_);
  }

  std::vector<ConvBench> run(double peak) {
    std::vector<ConvBench> results;
    const int64_t lanes = k_.lanes;
    const auto measure = [&](const char* pass, const std::function<void()>& torch_way,
                             const std::function<void()>& native_way, const std::function<double()>& error) {
      ConvBench b{.layer = name(), .pass = pass, .batch = o_.batch};
      // Results are compared before anything is timed.
      torch_way();
      native_way();
      b.error = error();
      const auto t = interleave({{"native", native_way}, {"torch", torch_way}}, o_.warmup, o_.repeats);
      b.native = t[0];
      b.torch = t[1];
      const auto n = static_cast<double>(o_.batch);
      const auto out_size = static_cast<double>(g_.size(2)),
                 tiles = static_cast<double>((g_.size(2) + 3) / 4);
      const double products = static_cast<double>(layer_.in * layer_.out) * n;
      const bool down = layer_.stride == 2;
      b.direct_flops = 2 * products * out_size * out_size * (down ? 10 : 9);
      b.floor_flops = 2 * products * tiles * tiles * (down ? 81 + 16 : 36);
      b.peak_flops = peak;
      results.push_back(b);
    };
    const auto back = [&](std::array<bool, 3> mask) {
      auto r = at::convolution_backward(g_, x_, w_, c10::nullopt, {layer_.stride, layer_.stride}, {1, 1},
                                        {1, 1}, false, {0, 0}, 1, mask);
      if (layer_.stride == 2) {
        const auto s = at::convolution_backward(g_, x_, ws_, c10::nullopt, {2, 2}, {0, 0}, {1, 1}, false,
                                                {0, 0}, 1, mask);
        if (mask[0]) std::get<0>(r) = std::get<0>(r) + std::get<0>(s);
      }
      return r;
    };
    torch::NoGradGuard guard;
    Tensor y, dx, dw;
    measure(
        "forward",
        [&] {
          y = torch_conv(w_, 1);
          if (layer_.stride == 2) torch_conv(ws_, 0);
        },
        [&] { native_forward(); }, [&] { return distance(planar(y_, g_, lanes), y); });
    measure(
        "data",
        [&] {
          dx = std::get<0>(back({true, false, false}));
        },
        [&] { native_data(); }, [&] { return distance(planar(dx_, x_, lanes), dx); });
    measure(
        "weights",
        [&] {
          dw = std::get<1>(back({false, true, false}));
        },
        [&] { native_weights(); }, [&] { return distance(dw_, dw); });
    return results;
  }

 private:
  cpu::Layer forward_layer() const { return {in(), out(), stride(), size(), size()}; }
  cpu::Layer back_layer() const { return {out(), in(), stride(), size(), size(), true}; }
  cpu::Schedule cut(const cpu::Layer& layer) const { return k_.cut(layer, cpu::l2_bytes()); }

  int in() const { return static_cast<int>(layer_.in); }
  int out() const { return static_cast<int>(layer_.out); }
  int stride() const { return static_cast<int>(layer_.stride); }
  int images() const { return static_cast<int>(o_.batch); }
  int size() const { return static_cast<int>(layer_.size); }

  std::string name() const {
    return layer_.stride == 1 ? fmt::format("{0}x{1}x{1}", layer_.in, layer_.size)
                              : fmt::format("{0}->{1} /2 from {2}x{2}", layer_.in, layer_.out, layer_.size);
  }
  Tensor planar(cpu::Buffer& panels, const Tensor& like, int64_t lanes) {
    return from_panels(torch::from_blob(
        panels.data(), {like.size(0), like.size(1) / lanes, like.size(2), like.size(3), lanes},
        torch::kFloat));
  }
  Tensor torch_conv(const Tensor& w, int64_t padding) const {
    const std::array<int64_t, 2> stride{layer_.stride, layer_.stride}, pad{padding, padding};
    return at::conv2d(x_, w, Tensor(), at::IntArrayRef(stride), at::IntArrayRef(pad));
  }
  /// As the network would cut it, without the team's sharing.
  cpu::Schedule schedule(const cpu::Layer& layer, int id) {
    cpu::Schedule s = cut(layer);
    s.v = v_[id].data();
    s.m = m_[id].data();
    return s;
  }

  void native_forward() {
    cpu::run_team(threads_, [&](const cpu::Team& team) {
      if (layer_.stride == 1) {
        k_.conv({.images = images(),
                 .height = size(),
                 .width = size(),
                 .in = in(),
                 .out = out(),
                 .x = px_.data(),
                 .u = forward_.data(),
                 .y = y_.data(),
                 .epilogue = {},
                 .schedule = schedule(forward_layer(), team.id)},
                team);
      } else {
        k_.down({.images = images(),
                 .height = size(),
                 .width = size(),
                 .in = in(),
                 .out = out(),
                 .x = px_.data(),
                 .u = forward_.data(),
                 .u_shortcut = shortcut_.data(),
                 .y = y_.data(),
                 .shortcut = ys_.data(),
                 .epilogue = {},
                 .schedule = schedule(forward_layer(), team.id)},
                team);
      }
    });
  }
  void native_data() {
    cpu::run_team(threads_, [&](const cpu::Team& team) {
      if (layer_.stride == 1) {
        k_.conv_grad({.images = images(),
                      .height = size(),
                      .width = size(),
                      .in = out(),
                      .out = in(),
                      .x = pg_.data(),
                      .u = back_.data(),
                      .y = dx_.data(),
                      .epilogue = {},
                      .schedule = schedule(back_layer(), team.id)},
                     team);
      } else {
        k_.down_grad({.images = images(),
                      .height = size(),
                      .width = size(),
                      .in = in(),
                      .out = out(),
                      .g = pg_.data(),
                      .g_shortcut = pg_.data(),
                      .u = back_.data(),
                      .u_shortcut = shortcut_back_.data(),
                      .dx = dx_.data(),
                      .epilogue = {},
                      .schedule = schedule(back_layer(), team.id)},
                     team);
      }
    });
  }
  void native_weights() {
    const cpu::WeightGradJob job{.images = images(),
                                 .height = size(),
                                 .width = size(),
                                 .in = in(),
                                 .out = out(),
                                 .in_real = in(),
                                 .out_real = out(),
                                 .stride = stride(),
                                 .x = px_.data(),
                                 .g = pg_.data(),
                                 .g_shortcut = pg_.data(),
                                 .shared = grad_cut_.shared,
                                 .block = grad_cut_.block,
                                 .du = du_.data(),
                                 .dw = dw_.data_ptr<float>(),
                                 .dw_shortcut = dws_.data_ptr<float>()};
    cpu::run_team(threads_, [&](const cpu::Team& team) {
      cpu::WeightGradJob mine = job;
      const size_t own = grad_cut_.shared ? 0 : static_cast<size_t>(team.id);
      mine.v = v_all_.data() + own * grad_space_.v;
      mine.d = d_all_.data() + own * grad_space_.d;
      k_.weight_grad(mine, team);
    });
  }

  Layer layer_;
  BenchOptions o_;
  const cpu::Kernels& k_;
  int threads_;
  Tensor x_, w_, ws_, g_, dw_, dws_;
  cpu::Buffer px_, pg_, forward_, back_, shortcut_, shortcut_back_, y_, ys_, dx_, v_all_, d_all_, du_;
  std::vector<cpu::Buffer> v_, m_;
  cpu::GradCut grad_cut_;
  cpu::GradSpace grad_space_;
};

}  // namespace

std::vector<ConvBench> bench_conv(const BenchOptions& o) {
  const cpu::Kernels* kernels = cpu::find_kernels(o.instructions);
  if (kernels == nullptr) {
    core::usage_error("bench",
                      fmt::format("this processor has no {}; bench conv needs AVX2 with FMA at least",
                                  o.instructions.empty() ? "AVX2 with FMA" : o.instructions));
  }
  const cpu::Kernels& k = *kernels;
  if (o.width % k.lanes != 0) {
    core::usage_error("bench", fmt::format("width {} is not a multiple of {}; choose one for bench conv",
                                           o.width, k.lanes));
  }
  const int threads = o.threads > 0 ? o.threads : at::get_num_threads();
  const double peak = cpu::fma_peak(k, threads);
  std::vector<ConvBench> results;
  int64_t size = o.size;
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t channels = o.width << stage;
    for (const Layer& layer : {Layer{channels, channels, size, 1}, Layer{channels, 2 * channels, size, 2}}) {
      if (stage == 3 && layer.stride == 2) continue;
      for (ConvBench& b : LayerBench(layer, o, k, threads).run(peak)) results.push_back(b);
    }
    size = (size + 1) / 2;
  }
  return results;
}

nlohmann::json to_json(const std::vector<ConvBench>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const ConvBench& b : results) {
    const auto per_image = [&](double seconds) { return seconds * 1e3 / static_cast<double>(b.batch); };
    list.push_back(
        {{"bench", "conv"},
         {"layer", b.layer},
         {"pass", b.pass},
         {"batch", b.batch},
         {"ms_per_image", {{"torch", per_image(b.torch.min)}, {"native", per_image(b.native.min)}}},
         {"ms_per_image_median",
          {{"torch", per_image(b.torch.median)}, {"native", per_image(b.native.median)}}},
         {"ratio", b.torch.min / b.native.min},
         {"difference", b.error},
         {"peak_gflops", b.peak_flops / 1e9},
         {"peak_share", b.direct_flops / (b.native.min * b.peak_flops)},
         {"floor_share", b.floor_flops / (b.native.min * b.peak_flops)}});
  }
  return list;
}

}  // namespace ebclr::bench
