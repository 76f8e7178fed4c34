#include "eval/untrained.h"

#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "data/image_set.h"

namespace ebclr::eval {
namespace {
constexpr int64_t kStatisticsImages = 1024;  // more change the mean of a channel by less than its noise
constexpr int64_t kStatisticsBatch = 128;
}  // namespace

void set_norm_statistics(nn::Encoder& encoder, const torch::Tensor& images) {
  std::vector<torch::nn::BatchNorm2dImpl*> norms;
  for (const auto& module : encoder.modules())
    if (auto* norm = module->as<torch::nn::BatchNorm2dImpl>()) norms.push_back(norm);
  if (norms.empty() || images.size(0) < 2) return;
  torch::NoGradGuard no_grad;
  const bool training = encoder.is_training();
  using Momentum = std::decay_t<decltype(norms[0]->options.momentum())>;
  std::vector<Momentum> momenta;
  for (auto* norm : norms) {
    momenta.push_back(norm->options.momentum());
    norm->options.momentum(Momentum());  // none: torch then takes the plain mean over batches
    norm->reset_running_stats();
  }
  encoder.train();
  const int64_t all = std::min(images.size(0), kStatisticsImages);
  for (int64_t i = 0; i < all; i += kStatisticsBatch) {
    const int64_t n = std::min(kStatisticsBatch, all - i);
    if (n > 1 || i == 0) encoder.forward_reference(data::to_unit_range(images.narrow(0, i, n)));
  }
  encoder.train(training);
  for (size_t i = 0; i < norms.size(); ++i) norms[i]->options.momentum(momenta[i]);
}

run::Model untrained_model(const run::Run& run, const EvalSets& sets) {
  const auto& images = sets.adapted.train;
  auto model = run.untrained({images.channels(), images.height(), images.width()});
  // Spread over the whole set, whatever its order.
  const int64_t stride = std::max<int64_t>(1, images.size() / kStatisticsImages);
  set_norm_statistics(*model.encoder, images.pixels.slice(0, 0, images.size(), stride));
  return model;
}

}  // namespace ebclr::eval
