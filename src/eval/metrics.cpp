#include "eval/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace ebclr::eval {

void check_labelled(const Labelled& part, int64_t classes, std::string_view name) {
  if (!part.features.defined() || part.features.dim() != 2 || part.features.size(0) == 0 ||
      part.features.size(1) == 0) {
    core::usage_error("eval", fmt::format("the {} part has no features; it needs at least one image", name));
  }
  if (!part.labels.defined() || part.labels.dim() != 1 || part.labels.size(0) != part.features.size(0)) {
    core::usage_error("eval",
                      fmt::format("the {} part has {} feature rows and {} labels; they must be as many", name,
                                  part.features.size(0), part.labels.defined() ? part.labels.numel() : 0));
  }
  const int64_t unlabelled = part.labels.lt(0).sum().item<int64_t>();
  if (unlabelled > 0) {
    core::usage_error(
        "eval",
        fmt::format("{} of {} {} images have no label; evaluation needs labels (class subfolders or a "
                    "labels CSV)",
                    unlabelled, part.labels.numel(), name));
  }
  const int64_t largest = part.labels.max().item<int64_t>();
  if (largest >= classes) {
    core::usage_error("eval", fmt::format("label {} in the {} part, but there are {} classes (0 to {})",
                                          largest, name, classes, classes - 1));
  }
  const auto bad = part.features.isfinite().all(1).logical_not();
  if (bad.any().item<bool>()) {
    core::usage_error(
        "eval", fmt::format("features of {} of {} {} images are NaN or infinite (the first is image {}); "
                            "the encoder has diverged: use an earlier checkpoint",
                            bad.sum().item<int64_t>(), part.labels.numel(), name,
                            bad.to(torch::kInt64).argmax().item<int64_t>()));
  }
}

void check_classes(const Labelled& train) {
  if (train.labels.eq(train.labels[0]).all().item<bool>()) {
    core::usage_error(
        "eval", fmt::format("all {} train images have the same label ({}); evaluation needs two classes "
                            "or more",
                            train.labels.numel(), train.labels[0].item<int64_t>()));
  }
}

Interval wilson(int64_t correct, int64_t total, double z) {
  if (total <= 0) return {0, 1};
  const double n = static_cast<double>(total), p = static_cast<double>(correct) / n, z2 = z * z;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = z / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

Score score(const torch::Tensor& truth, const torch::Tensor& predictions, int64_t classes) {
  const auto t = truth.to(torch::kCPU, torch::kInt64).contiguous();
  const auto p = predictions.to(torch::kCPU, torch::kInt64).contiguous();
  if (t.numel() != p.numel()) {
    core::usage_error(
        "eval", fmt::format("{} predictions for {} labels; they must be as many", p.numel(), t.numel()));
  }
  Score s;
  s.total = t.numel();
  s.confusion = torch::bincount(t * classes + p, {}, classes * classes).view({classes, classes});
  const auto right = s.confusion.diagonal().contiguous(), rows = s.confusion.sum(1);
  s.correct = right.sum().item<int64_t>();
  s.accuracy = s.total ? static_cast<double>(s.correct) / static_cast<double>(s.total) : std::nan("");
  s.interval = wilson(s.correct, s.total);
  for (int64_t c = 0; c < classes; ++c) {
    const auto n = static_cast<double>(rows[c].item<int64_t>());
    s.per_class.push_back(n > 0 ? static_cast<double>(right[c].item<int64_t>()) / n : std::nan(""));
  }
  return s;
}

double auroc(const torch::Tensor& scores, const torch::Tensor& positive) {
  const auto s = scores.to(torch::kCPU, torch::kFloat64).contiguous();
  const auto y = positive.to(torch::kCPU, torch::kBool).contiguous();
  if (s.numel() != y.numel()) {
    core::usage_error("eval",
                      fmt::format("{} scores for {} marks; they must be as many", s.numel(), y.numel()));
  }
  const double* value = s.data_ptr<double>();
  const bool* mark = y.data_ptr<bool>();
  std::vector<int64_t> order(s.numel());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return value[a] < value[b]; });
  // Mann-Whitney: ranks of the positives, equal scores share their mean rank.
  double ranks = 0, positives = 0;
  for (size_t i = 0; i < order.size();) {
    size_t j = i;
    double marked = 0;
    for (; j < order.size() && value[order[j]] == value[order[i]]; ++j) marked += mark[order[j]];
    ranks += marked * (static_cast<double>(i + 1) + static_cast<double>(j)) / 2;
    positives += marked;
    i = j;
  }
  const double negatives = static_cast<double>(order.size()) - positives;
  if (positives == 0 || negatives == 0) {
    core::usage_error(
        "eval", fmt::format("AUROC of {:.0f} positives and {:.0f} negatives is undefined; it needs both",
                            positives, negatives));
  }
  return (ranks - positives * (positives + 1) / 2) / (positives * negatives);
}

Spread spread(const std::vector<double>& values) {
  Spread s;
  if (values.empty()) return {std::nan(""), std::nan("")};
  const auto n = static_cast<double>(values.size());
  s.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (double v : values) squares += (v - s.mean) * (v - s.mean);
  s.deviation = values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return s;
}

}  // namespace ebclr::eval
