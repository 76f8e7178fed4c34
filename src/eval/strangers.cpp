#include "eval/strangers.h"

#include <torch/torch.h>

#include <utility>

#include "core/rng.h"
#include "data/catalog.h"
#include "data/shapes.h"
#include "eval/features.h"
#include "eval/metrics.h"
#include "eval/outliers.h"

namespace ebclr::eval {
namespace {

using torch::Tensor;

data::ImageSet named(const std::string& name, Tensor pixels) {
  data::ImageSet set;
  set.name = name;
  set.split = "test";
  set.labels = torch::full({pixels.size(0)}, data::kNoLabel, torch::kInt64);
  set.pixels = std::move(pixels);
  return set;
}

Tensor to_bytes(const Tensor& values) {
  return values.round().clamp(0, 255).to(torch::kUInt8).contiguous();
}

Tensor noise(const Tensor& like, uint64_t seed) {
  core::Rng rng(seed, core::Stream::kEval, {11});
  auto out = torch::empty_like(like);
  for (uint8_t *p = out.data_ptr<uint8_t>(), *end = p + out.numel(); p != end; ++p)
    *p = static_cast<uint8_t>(rng.below(256));
  return out;
}

// A 5 x 5 box twice: details go, colours and layout stay.
Tensor blurred(const Tensor& pixels) {
  auto x = pixels.to(torch::kFloat32);
  for (int i = 0; i < 2; ++i)
    x = torch::avg_pool2d(torch::replication_pad2d(x, {2, 2, 2, 2}), {5, 5}, {1, 1});
  return to_bytes(x);
}

// Sixteen tiles of each image in random order: every detail is real, the whole is not.
Tensor shuffled(const Tensor& pixels, uint64_t seed) {
  const int64_t th = pixels.size(2) / 4, tw = pixels.size(3) / 4;
  auto out = pixels.clone();
  core::Rng rng(seed, core::Stream::kEval, {12});
  for (int64_t n = 0; n < pixels.size(0); ++n) {
    std::vector<int64_t> order(16);
    for (int64_t i = 0; i < 16; ++i) order[static_cast<size_t>(i)] = i;
    for (size_t i = 15; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t from = order[static_cast<size_t>(i)];
      const auto tile = [&](const Tensor& t, int64_t at) {
        return t[n].narrow(1, at / 4 * th, th).narrow(2, at % 4 * tw, tw);
      };
      tile(out, i).copy_(tile(pixels, from));
    }
  }
  return out;
}

// Another set's pixels in the channels and size of the own images.
Tensor in_shape_of(const Tensor& own, data::ImageSet other) {
  auto x = adapt(std::move(other), own.size(1), {}, /*grayscale=*/true).set.pixels;
  if (x.size(2) == own.size(2) && x.size(3) == own.size(3)) return x;
  return to_bytes(torch::upsample_bilinear2d(x.to(torch::kFloat32), {own.size(2), own.size(3)}, false));
}

}  // namespace

std::vector<Strangers> make_strangers(const data::ImageSet& own_set, const StrangerOptions& o) {
  torch::NoGradGuard no_grad;
  const auto own = data::limit(own_set, o.count, o.seed).pixels;
  std::vector<Strangers> out;
  const auto add = [&](const std::string& name, Tensor pixels) {
    out.push_back({name, named(name, std::move(pixels))});
  };
  add("shapes",
      in_shape_of(own, data::make_shapes(
                           {.size = own.size(2), .gray = own.size(1) == 1, .count = o.count, .seed = o.seed},
                           "test")));
  add("noise", noise(own, o.seed));
  add("blurred", blurred(own));
  add("shuffled", shuffled(own, o.seed));
  const auto known = data::catalog(o.data_root);
  std::string own_images = own_set.name;
  for (const auto& e : known)
    if (e.name == own_set.name) own_images = e.images;
  for (const auto& e : known) {
    if (e.folder.empty() || !e.present) continue;  // shapes are drawn above
    if (e.name != e.images || e.name == own_images) continue;
    auto test =
        data::load(
            {.source = e.name, .data_root = o.data_root, .seed = o.seed, .limit = 1, .limit_test = o.count})
            .test;
    add(e.name, in_shape_of(own, std::move(test)));
  }
  return out;
}

StrangerScores score_strangers(const density::Density& density, const data::ImageSet& own,
                               const std::vector<Strangers>& strangers,
                               const std::function<void(double)>& progress) {
  torch::NoGradGuard no_grad;
  auto& encoder = *density.model.encoder;
  const auto train_features = features(encoder, *density.images).to(torch::kCPU);
  const FeatureDistances distances(train_features);
  const auto scores_of = [&](const std::string& name, const data::ImageSet& set) {
    const auto f = features(encoder, set).to(torch::kCPU);
    return SetScores{name, density::energies(density, set).to(torch::kFloat64), distances.neighbour(f),
                     distances.mahalanobis(f), f.norm(2, 1).to(torch::kFloat64)};
  };
  StrangerScores out;
  out.training = {"training", density::energies(density, *density.images).to(torch::kFloat64),
                  distances.neighbour(train_features, /*known=*/true), distances.mahalanobis(train_features),
                  train_features.norm(2, 1).to(torch::kFloat64)};
  out.own = scores_of("own", own);
  for (const auto& s : strangers) {
    if (progress) progress(static_cast<double>(out.sets.size()) / static_cast<double>(strangers.size()));
    out.sets.push_back(scores_of(s.name, s.set));
  }
  return out;
}

std::vector<StrangerRow> judge_strangers(const StrangerScores& scores) {
  const auto combined = [&](const SetScores& s) {
    return unusualness({{s.energy, scores.training.energy},
                        {s.mahalanobis, scores.training.mahalanobis},
                        {s.length, scores.training.length}});
  };
  const auto against = [](const Tensor& inside, const Tensor& outside) {
    const auto positive = torch::cat(
        {torch::zeros({inside.size(0)}, torch::kBool), torch::ones({outside.size(0)}, torch::kBool)});
    return auroc(torch::cat({inside, outside}), positive);
  };
  const auto& own = scores.own;
  std::vector<StrangerRow> rows;
  StrangerRow mean{.name = "mean"};
  const double share = 1.0 / static_cast<double>(scores.sets.size());
  for (const auto& theirs : scores.sets) {
    rows.push_back({theirs.name, against(own.energy, theirs.energy), against(own.neighbour, theirs.neighbour),
                    against(own.mahalanobis, theirs.mahalanobis), against(combined(own), combined(theirs))});
    mean.energy += rows.back().energy * share;
    mean.neighbour += rows.back().neighbour * share;
    mean.mahalanobis += rows.back().mahalanobis * share;
    mean.combined += rows.back().combined * share;
  }
  rows.push_back(mean);
  return rows;
}

}  // namespace ebclr::eval
