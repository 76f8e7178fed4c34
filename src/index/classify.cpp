#include "index/classify.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/error.h"
#include "core/rng.h"
#include "eval/knn.h"
#include "eval/linear.h"

namespace ebclr::index {
namespace {

constexpr std::string_view kClassifyComponent = "classify";

torch::Tensor logits_of(const eval::Probe& probe, const torch::Tensor& x) {
  auto in = x;
  if (probe.mean.defined()) in = (in - probe.mean) * probe.scale;
  return torch::addmm(probe.bias[0], in, probe.weight[0].t());
}

eval::Probe fit(const torch::Tensor& x, const torch::Tensor& y, int64_t classes, uint64_t seed) {
  // With few labels the last digits of the rate do not matter: a coarse grid on a quarter held out.
  return eval::fit_probe({x, y}, classes,
                         {.epochs = 100,
                          .rates = eval::ProbeOptions::log_grid(-3.5, -1, 6),
                          .held_out = 0.25,
                          .standardise = true,
                          .seed = seed})
      .probe;
}

// For each labelled image the first labelled one of the same bytes; both numbers among the labelled.
std::vector<int64_t> heads_of(const torch::Tensor& known, const std::vector<size_t>& first) {
  std::vector<int64_t> head(static_cast<size_t>(known.size(0)));
  std::unordered_map<size_t, int64_t> seen;
  for (size_t i = 0; i < head.size(); ++i) {
    const auto image = static_cast<size_t>(known.data_ptr<int64_t>()[i]);
    const auto number = static_cast<int64_t>(i);
    head[i] = first.empty() ? number : seen.emplace(first[image], number).first->second;
  }
  return head;
}

// A fold for each label: classes spread evenly, seeded; copies are in the fold of their head.
std::vector<int64_t> deal(const torch::Tensor& labels, const std::vector<int64_t>& head, int folds,
                          int64_t classes, uint64_t seed) {
  core::Rng rng(seed, core::Stream::kEval, {21});
  std::vector<int64_t> order;
  for (size_t i = 0; i < head.size(); ++i)
    if (head[i] == static_cast<int64_t>(i)) order.push_back(head[i]);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  std::vector<int64_t> next(static_cast<size_t>(classes)), fold(head.size());
  const auto* y = labels.data_ptr<int64_t>();
  for (const int64_t i : order)
    fold[static_cast<size_t>(i)] = (next[static_cast<size_t>(y[i])]++ + y[i]) % folds;
  for (size_t i = 0; i < head.size(); ++i) fold[i] = fold[static_cast<size_t>(head[i])];
  return fold;
}

// Pictures of the class that has fewest, copies aside; a class needs two, one to learn from and one to ask
// about.
int64_t fewest_pictures(const torch::Tensor& labels, const std::vector<int64_t>& head,
                        const std::vector<std::string>& class_names) {
  std::vector<int64_t> labelled(class_names.size()), pictures(class_names.size());
  for (size_t i = 0; i < head.size(); ++i) {
    const auto c = static_cast<size_t>(labels.data_ptr<int64_t>()[i]);
    ++labelled[c];
    pictures[c] += head[i] == static_cast<int64_t>(i);
  }
  for (size_t c = 0; c < class_names.size(); ++c)
    if (pictures[c] < 2)
      core::usage_error(
          kClassifyComponent,
          fmt::format("class '{}' has {} label(s){}; two are the least, ten a start", class_names[c],
                      labelled[c],
                      labelled[c] > pictures[c] ? fmt::format(", copies aside {}", pictures[c]) : ""));
  return *std::min_element(pictures.begin(), pictures.end());
}

}  // namespace

double fit_temperature(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto loss = [&](double log_t) {
    return torch::nn::functional::cross_entropy(logits.to(torch::kFloat64) / std::exp(log_t), labels)
        .item<double>();
  };
  // The loss has one valley in log T: golden section.
  double low = -3, high = 4;
  constexpr double g = 0.6180339887498949;
  for (int i = 0; i < 60; ++i) {
    const double a = high - g * (high - low), b = low + g * (high - low);
    if (loss(a) < loss(b)) {
      high = b;
    } else {
      low = a;
    }
  }
  return std::exp((low + high) / 2);
}

double calibration_error(const torch::Tensor& probabilities, const torch::Tensor& labels) {
  const auto [confidence, guess] = probabilities.to(torch::kFloat64).max(1);
  const auto right = guess.eq(labels).to(torch::kFloat64);
  const auto bin = (confidence * 10).clamp(0, 9.999).to(torch::kInt64);
  double error = 0;
  for (int64_t b = 0; b < 10; ++b) {
    const auto in = bin.eq(b).to(torch::kFloat64);
    const double n = in.sum().item<double>();
    if (n > 0) error += std::abs(((confidence - right) * in).sum().item<double>());
  }
  return error / static_cast<double>(labels.size(0));
}

Classified classify(const torch::Tensor& features, const torch::Tensor& labels,
                    const std::vector<std::string>& class_names, const ClassifyOptions& o) {
  torch::NoGradGuard no_grad;
  const auto classes = static_cast<int64_t>(class_names.size());
  const auto known = labels.ge(0).nonzero().flatten();
  if (classes < 2)
    core::usage_error(kClassifyComponent,
                      fmt::format("the labels name {} class(es); two are the least", classes));
  const auto x = features.index_select(0, known), y = labels.index_select(0, known).contiguous();
  const auto head = heads_of(known, o.first);
  const int64_t fewest = fewest_pictures(y, head, class_names);
  Classified out;
  out.folds = static_cast<int>(std::min<int64_t>(std::max(2, o.folds), fewest));
  const auto fold_of = torch::tensor(deal(y, head, out.folds, classes, o.seed), torch::kInt64);
  auto held = torch::empty({y.size(0), classes});
  for (int f = 0; f < out.folds; ++f) {
    const auto mine = fold_of.eq(f).nonzero().flatten(), rest = fold_of.ne(f).nonzero().flatten();
    if (mine.size(0) == 0) continue;
    const auto probe = fit(x.index_select(0, rest), y.index_select(0, rest), classes, o.seed);
    held.index_copy_(0, mine, logits_of(probe, x.index_select(0, mine)));
    if (o.progress) o.progress((f + 1.0) / (out.folds + 1.0));
  }
  out.held_out = eval::score(y, held.argmax(1), classes);
  out.temperature = fit_temperature(held, y);
  auto calibrated = torch::empty_like(held);
  for (int f = 0; f < out.folds; ++f) {
    const auto mine = fold_of.eq(f).nonzero().flatten(), rest = fold_of.ne(f).nonzero().flatten();
    const double t = fit_temperature(held.index_select(0, rest), y.index_select(0, rest));
    calibrated.index_copy_(0, mine, held.index_select(0, mine) / t);
  }
  out.error_before = calibration_error(held.softmax(1), y);
  out.error_after = calibration_error(calibrated.softmax(1), y);
  const auto probe = fit(x, y, classes, o.seed);
  out.probabilities = (logits_of(probe, features) / out.temperature).softmax(1);
  out.predictions = out.probabilities.argmax(1);
  if (o.progress) o.progress(1);
  return out;
}

torch::Tensor classify_split(const eval::Labelled& train, const torch::Tensor& test, int64_t classes,
                             uint64_t seed) {
  torch::NoGradGuard no_grad;
  return logits_of(fit(train.features, train.labels, classes, seed), test);
}

std::vector<int64_t> suggest(const torch::Tensor& features, const torch::Tensor& labels,
                             const torch::Tensor& probabilities, int64_t count) {
  const auto open = labels.lt(0).nonzero().flatten();
  if (open.size(0) == 0 || count < 1) return {};
  const auto p = probabilities.index_select(0, open);
  const auto entropy = -(p * p.clamp_min(1e-12).log()).sum(1);
  // The most uncertain, ten times as many as wanted, and of these the ones far from what was picked.
  const auto best = std::get<1>(entropy.topk(std::min(open.size(0), 10 * count)));
  const auto rows = open.index_select(0, best);
  const auto f = eval::unit_rows(features.index_select(0, rows));
  const auto weight = entropy.index_select(0, best);
  auto distance = torch::full({rows.size(0)}, 2.0f);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < std::min(count, rows.size(0)); ++i) {
    const auto pick = (distance * weight).argmax().item<int64_t>();
    out.push_back(rows[pick].item<int64_t>());
    distance = torch::minimum(distance, 1 - f.matmul(f[pick]));
    distance[pick] = -1;
  }
  return out;
}

}  // namespace ebclr::index
