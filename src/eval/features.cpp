#include "eval/features.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>

#include "core/error.h"
#include "data/folder.h"
#include "data/image_cache.h"
#include "dist/rows.h"
#include "run/config.h"

namespace ebclr::eval {
namespace {

/// Inference mode for as long as it lives.
class Frozen {
 public:
  explicit Frozen(torch::nn::Module* module) : module_(module), training_(module && module->is_training()) {
    if (module_ && training_) module_->eval();
  }
  ~Frozen() {
    if (module_ && training_) module_->train();
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

 private:
  torch::nn::Module* module_;
  bool training_;
};

constexpr int64_t kRelease = 4096;  // mapped images after which their pages are given back

}  // namespace

torch::Tensor features(nn::Encoder& encoder, const data::ImageSet& set, const FeatureOptions& options) {
  if (set.size() == 0) {
    core::usage_error(
        "eval", fmt::format("'{}' has no {} images; nothing to compute features of", set.name, set.split));
  }
  if (options.batch_size < 1) {
    core::usage_error("eval", fmt::format("batch size {}; use 1 or more", options.batch_size));
  }
  torch::NoGradGuard no_grad;
  Frozen frozen_encoder(&encoder), frozen_head(options.head);
  const auto device = encoder.parameters().front().device();
  int64_t since_release = 0;
  return dist::compute_rows(
      *options.ranks,
      {.total = set.size(),
       .batch = options.batch_size,
       .width = options.head ? options.head->options().out : encoder.feature_dim(),
       .compute =
           [&](int64_t first, int64_t count) {
             auto y = encoder.forward(data::to_unit_range(set.pixels.narrow(0, first, count)).to(device));
             if (options.head) y = options.head->forward(y);
             since_release += count;
             if (set.mapping && since_release >= kRelease) set.mapping->release(), since_release = 0;
             return y;
           },
       .progress = options.progress});
}

torch::Tensor pixel_features(const data::ImageSet& set) {
  if (set.size() == 0) core::usage_error("eval", fmt::format("'{}' has no {} images", set.name, set.split));
  return data::to_unit_range(set.pixels).flatten(1).contiguous();
}

Adapted adapt(data::ImageSet set, int64_t channels, const std::vector<int64_t>& trained_shape,
              bool grayscale) {
  Adapted out{std::move(set), {}};
  if (out.set.size() == 0) return out;
  const int64_t height = out.set.height(), width = out.set.width();
  if (height < nn::kSmallestSide || width < nn::kSmallestSide) {
    core::usage_error(
        "eval", fmt::format("images of '{}' are {} x {}; the encoder reads {} x {} or larger (of a folder: "
                            "data.image_size)",
                            out.set.name, width, height, nn::kSmallestSide, nn::kSmallestSide));
  }
  if (out.set.channels() == 1 && channels == 3) {
    out.set.pixels = out.set.pixels.expand({-1, 3, -1, -1}).contiguous();
    out.set.large = torch::Tensor();
    out.notes.push_back(
        fmt::format("grey images of '{}' were copied to 3 channels for a colour encoder", out.set.name));
  } else if (out.set.channels() == 3 && channels == 1) {
    if (!grayscale) {
      core::usage_error(
          "eval",
          fmt::format("the encoder reads grey images and '{}' is in colour; possible: converting them to "
                      "grey (--grayscale), a grey set, or an encoder trained on colour images",
                      out.set.name));
    }
    // As image::square_planes does it: a picture has the same pixels whether it is read in grey or converted.
    const auto luma = torch::tensor({19595, 38470, 7471}, torch::kInt32).view({1, 3, 1, 1});
    std::vector<torch::Tensor> parts;
    for (const auto& part : out.set.pixels.split(8192)) {
      const auto sum = (part.to(torch::kInt32) * luma).sum(1, true, torch::kInt32);
      parts.push_back((sum + 32768).bitwise_right_shift(16).to(torch::kUInt8));
    }
    out.set.pixels = torch::cat(parts);
    out.set.large = torch::Tensor();
    out.notes.push_back(
        fmt::format("colour images of '{}' were converted to grey (ITU-R 601 luma)", out.set.name));
  } else if (out.set.channels() != channels) {
    core::usage_error("eval", fmt::format("images of '{}' have {} channels, the encoder reads {}",
                                          out.set.name, out.set.channels(), channels));
  }
  if (trained_shape.size() == 3 && (trained_shape[1] != height || trained_shape[2] != width)) {
    out.notes.push_back(
        fmt::format("images of '{}' are {} x {}, the encoder was trained on {} x {}: read at their own "
                    "size (the encoder is convolutional)",
                    out.set.name, width, height, trained_shape[2], trained_shape[1]));
  }
  return out;
}

KnnMonitor make_knn_monitor(const data::ImageSet& train, const data::ImageSet& test,
                            const KnnMonitorOptions& options) {
  auto complain = [&](const std::string& what) {
    core::usage_error("eval.monitor", what + "; switch it off with monitor.knn_every=0");
  };
  if (train.size() == 0 || !train.labelled() || (test.size() > 0 && !test.labelled())) {
    complain(fmt::format("'{}' has images without a label and the kNN monitor needs labels", train.name));
  }
  struct Sets {
    data::ImageSet train, test;
  };
  auto sets = std::make_shared<Sets>();
  if (test.size() > 0) {
    sets->train = data::limit(train, options.train, options.seed);
    sets->test = data::limit(test, options.test, options.seed);
  } else {
    const auto [rest, held] = data::hold_out(train, 0.1, options.seed);
    sets->train = data::limit(data::select(train, rest), options.train, options.seed);
    sets->test = data::limit(data::select(train, held), options.test, options.seed);
  }
  if (sets->test.size() == 0)
    complain(fmt::format("'{}' is too small to hold images out for the kNN monitor", train.name));
  KnnOptions knn = options.knn;
  knn.k = std::min(knn.k, sets->train.size());
  const int64_t classes = std::max(
      {train.classes(), train.labels.max().item<int64_t>() + 1, sets->test.labels.max().item<int64_t>() + 1});
  return [sets, knn, classes](nn::Encoder& encoder) {
    const Labelled known{features(encoder, sets->train), sets->train.labels};
    const Labelled asked{features(encoder, sets->test), sets->test.labels};
    return knn_score(known, asked, classes, knn).accuracy;
  };
}

KnnMonitor monitor_of(const run::Config& config, const data::ImageSet& train, const data::ImageSet& test,
                      int threads) {
  const auto& m = config.monitor;
  if (m.knn_every == 0) return {};
  const KnnMonitorOptions options{.train = m.train, .test = m.test, .seed = config.train.seed};
  if (m.probe.empty()) return make_knn_monitor(train, test, options);
  const auto probe = data::load_probe(
      m.probe, {.image_size = train.height(), .grayscale = train.channels() == 1, .threads = threads},
      config.train.seed);
  return make_knn_monitor(probe.train, probe.test, options);
}

KnnMonitor monitor_to_resume(const run::Config& config, const data::ImageSet& train,
                             const data::ImageSet& test, const std::function<void(const std::string&)>& tell,
                             int threads) {
  try {
    return monitor_of(config, train, test, threads);
  } catch (const core::Error& e) {
    tell(fmt::format("training goes on without its monitor: {}", e.what()));
    return {};
  }
}

}  // namespace ebclr::eval
