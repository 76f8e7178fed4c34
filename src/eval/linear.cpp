#include "eval/linear.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/rng.h"
#include "data/class_rows.h"
#include "eval/matmul.h"

namespace ebclr::eval {
namespace {

// Parts of the key of the evaluation stream, so that no two uses share numbers.
enum class Use : uint64_t { kOrder = 1, kStart = 2, kSplit = 3, kDraw = 4 };

core::Rng stream(uint64_t seed, Use use, uint64_t part) {
  return core::Rng(seed, core::Stream::kEval, {static_cast<uint64_t>(use), part});
}

Labelled take(const Labelled& part, const torch::Tensor& rows) {
  return {part.features.index_select(0, rows), part.labels.index_select(0, rows)};
}

void check_options(const ProbeOptions& options) {
  if (options.rates.empty())
    core::usage_error("eval.linear", "the grid of learning rates is empty; give one or more");
  for (double r : options.rates) {
    if (!(r > 0) || !std::isfinite(r)) {
      core::usage_error("eval.linear", fmt::format("learning rate {} in the grid; use values above 0", r));
    }
  }
  if (options.epochs < 1 || options.batch_size < 1) {
    core::usage_error("eval.linear", fmt::format("{} epochs with batches of {}; use 1 or more",
                                                 options.epochs, options.batch_size));
  }
  if (!(options.held_out > 0 && options.held_out < 1)) {
    core::usage_error("eval.linear",
                      fmt::format("held-out share {}; use a value between 0 and 1", options.held_out));
  }
}

/// exp(x) for x <= 0, to 2 units in the last place; branch-free, so that compilers vectorise loops over it.
inline float exp_negative(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f,
                  kRound = 12582912.0f;
  x = std::max(x, -87.0f);
  const float whole = (x * kLog2E + kRound) - kRound;  // nearest integer
  const float r = (x - whole * kLn2High) - whole * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(whole) + 127) << 23);
}

/// Adds the bias to logits [B, R, C] and turns them into the gradient of each rate's mean cross-entropy, in
/// place; the bias's own gradient [R, C] is summed beside it.
void softmax_gradient(float* logits, const float* bias, const int64_t* labels, int64_t batch, int64_t rates,
                      int64_t classes, float* bias_gradient) {
  const float share = 1.0f / static_cast<float>(batch);
  std::fill_n(bias_gradient, rates * classes, 0.0f);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t r = 0; r < rates; ++r) {
      float* row = logits + (b * rates + r) * classes;
      const float* shift = bias + r * classes;
      float* total = bias_gradient + r * classes;
      float top = -INFINITY, sum = 0;
#pragma omp simd reduction(max : top)
      for (int64_t c = 0; c < classes; ++c) top = std::max(top, row[c] += shift[c]);
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < classes; ++c) sum += row[c] = exp_negative(row[c] - top);
      const float factor = share / sum;
#pragma omp simd
      for (int64_t c = 0; c < classes; ++c) row[c] *= factor;
      row[labels[b]] -= share;
#pragma omp simd
      for (int64_t c = 0; c < classes; ++c) total[c] += row[c];
    }
  }
}

/// Adam's state for a parameter of `rows` x `columns`, where column j has its own learning rate.
class Adam {
 public:
  Adam(int64_t rows, const std::vector<float>& rates)
      : rows_(rows),
        columns_(static_cast<int64_t>(rates.size())),
        rates_(rates),
        first_(rows * columns_),
        second_(rows * columns_) {}

  void step(float* parameter, const float* gradient, int64_t t) {
    constexpr float kBeta1 = 0.9f, kBeta2 = 0.999f, kEpsilon = 1e-8f;
    const auto bias1 = static_cast<float>(1 / (1 - std::pow(0.9, static_cast<double>(t))));
    const auto bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, static_cast<double>(t))));
    for (int64_t i = 0; i < rows_; ++i) {
      float* w = parameter + i * columns_;
      const float* g = gradient + i * columns_;
      float* m = first_.data() + i * columns_;
      float* v = second_.data() + i * columns_;
      const float* rate = rates_.data();
#pragma omp simd
      for (int64_t j = 0; j < columns_; ++j) {
        m[j] = kBeta1 * m[j] + (1 - kBeta1) * g[j];
        v[j] = kBeta2 * v[j] + (1 - kBeta2) * g[j] * g[j];
        w[j] -= rate[j] * bias1 * m[j] / (std::sqrt(v[j]) * bias2 + kEpsilon);
      }
    }
  }

 private:
  int64_t rows_, columns_;
  std::vector<float> rates_, first_, second_;
};

/// Weights [D, R * C] and biases [R * C] of a few rates; column r * C + c belongs to class c at rate r.
struct Group {
  torch::Tensor weight, bias;
};

/// Trains a few rates together on x float [N, D], labels int64 [N], in the calling thread alone.
Group train_group(const torch::Tensor& x, const torch::Tensor& labels, int64_t classes,
                  const std::vector<double>& group_rates, const ProbeOptions& options,
                  const std::function<void()>& epoch_done) {
  const int64_t n = x.size(0), width = x.size(1), largest = std::min(n, options.batch_size);
  const auto rates = static_cast<int64_t>(group_rates.size()), columns = rates * classes;
  const auto [start_weight, start_bias] = probe_start(classes, width, options.seed);
  Group group{start_weight.t().repeat({1, rates}).contiguous(), start_bias.repeat({rates}).contiguous()};
  std::vector<float> rate_of_column(columns);
  for (int64_t j = 0; j < columns; ++j) rate_of_column[j] = static_cast<float>(group_rates[j / classes]);
  Adam weight_adam(width, rate_of_column), bias_adam(1, rate_of_column);
  auto weight_gradient = torch::empty({width, columns}), bias_gradient = torch::empty({columns});
  auto batch_x = torch::empty({largest, width}), logits = torch::empty({largest, columns});
  std::vector<int64_t> batch_y(largest);
  const float* source = x.data_ptr<float>();
  float* target = batch_x.data_ptr<float>();

  int64_t step = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto order = probe_order(n, options.seed, epoch);
    const int64_t* row = order.data_ptr<int64_t>();
    for (int64_t i = 0; i < n; i += options.batch_size) {
      const int64_t size = std::min(options.batch_size, n - i);
      for (int64_t b = 0; b < size; ++b) {
        std::copy_n(source + row[i + b] * width, width, target + b * width);
        batch_y[b] = labels.data_ptr<int64_t>()[row[i + b]];
      }
      const auto bx = batch_x.narrow(0, 0, size);
      auto out = logits.narrow(0, 0, size);
      matmul(bx, group.weight, out);
      softmax_gradient(out.data_ptr<float>(), group.bias.data_ptr<float>(), batch_y.data(), size, rates,
                       classes, bias_gradient.data_ptr<float>());
      matmul(bx.t(), out, weight_gradient);
      ++step;
      weight_adam.step(group.weight.data_ptr<float>(), weight_gradient.data_ptr<float>(), step);
      bias_adam.step(group.bias.data_ptr<float>(), bias_gradient.data_ptr<float>(), step);
    }
    epoch_done();
  }
  return group;
}

int64_t best_of(const std::vector<double>& accuracies) {
  return std::max_element(accuracies.begin(), accuracies.end()) - accuracies.begin();
}

std::vector<double> accuracies(const Probe& probe, const Labelled& part) {
  const auto right = probe.predict(part.features).eq(part.labels.unsqueeze(0)).to(torch::kFloat64).mean(1);
  std::vector<double> out;
  for (int64_t r = 0; r < right.size(0); ++r) {
    // A diverged classifier predicts something too; it may not win.
    const bool sound = probe.weight[r].isfinite().all().item<bool>();
    out.push_back(sound ? right[r].item<double>() : 0.0);
  }
  return out;
}

/// The honest choice: grid on one part of train, judged on the other, winner refitted on all of it.
ProbeResult fit_honestly(const Labelled& train, int64_t classes, const ProbeOptions& options) {
  ProbeResult result;
  result.protocol = ProbeProtocol::kHonest;
  result.rates = options.rates;
  const auto [rest, held] = stratified_split(train.labels, options.held_out, options.seed);
  // A whole grid costs little more than one rate, but both stages train on (nearly) all of train.
  constexpr double kGridShare = 0.8;
  ProbeOptions grid = options, refit = options;
  if (options.progress) {
    grid.progress = [&](double done) { options.progress(kGridShare * done); };
    refit.progress = [&](double done) { options.progress(kGridShare + (1 - kGridShare) * done); };
  }
  const bool nothing_held = held.numel() == 0;
  const Labelled fit = nothing_held ? train : take(train, rest),
                 judge = nothing_held ? train : take(train, held);
  result.grid_accuracy = accuracies(train_probe(fit, classes, grid), judge);
  result.best = best_of(result.grid_accuracy);
  refit.rates = {options.rates[result.best]};
  result.probe = train_probe(train, classes, refit);
  return result;
}

}  // namespace

ProbeProtocol probe_protocol(std::string_view name) {
  if (name == "honest") return ProbeProtocol::kHonest;
  if (name == "paper") return ProbeProtocol::kPaper;
  core::usage_error("eval.linear", fmt::format("unknown protocol '{}'; use honest or paper", name));
}

std::string_view name(ProbeProtocol protocol) {
  return protocol == ProbeProtocol::kHonest ? "honest" : "paper";
}

std::string_view label(ProbeProtocol protocol) {
  return protocol == ProbeProtocol::kHonest
             ? "honest: learning rate chosen on a held-out part of train, test read once"
             : "paper: best test accuracy over the grid, learning rate chosen on test";
}

std::vector<double> ProbeOptions::log_grid(double low, double high, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i)
    out.push_back(std::pow(10, count > 1 ? low + (high - low) * i / (count - 1) : low));
  return out;
}

torch::Tensor Probe::predict(const torch::Tensor& features) const {
  torch::NoGradGuard no_grad;
  const int64_t rates = weight.size(0), classes = weight.size(1);
  const auto flat = weight.reshape({rates * classes, -1}).t();
  std::vector<torch::Tensor> parts;
  constexpr int64_t kBlock = 8192;
  for (int64_t i = 0; i < features.size(0); i += kBlock) {
    auto x = features.narrow(0, i, std::min(kBlock, features.size(0) - i)).to(torch::kFloat32);
    if (mean.defined()) x = (x - mean) * scale;
    parts.push_back(torch::addmm(bias.flatten(), x, flat).view({-1, rates, classes}).argmax(2));
  }
  return torch::cat(parts).t().contiguous();
}

Probe Probe::only(int64_t r) const {
  return {weight.narrow(0, r, 1).clone(), bias.narrow(0, r, 1).clone(), mean, scale};
}

torch::Tensor probe_order(int64_t n, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(n);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  data::shuffle(order, stream(seed, Use::kOrder, static_cast<uint64_t>(epoch)));
  return torch::tensor(order, torch::kInt64);
}

std::pair<torch::Tensor, torch::Tensor> probe_start(int64_t classes, int64_t width, uint64_t seed) {
  core::Rng rng = stream(seed, Use::kStart, 0);
  const float bound = 1.0f / std::sqrt(static_cast<float>(width));
  auto weight = torch::empty({classes, width}), bias = torch::empty({classes});
  for (int64_t i = 0; i < weight.numel(); ++i) weight.data_ptr<float>()[i] = rng.uniform(-bound, bound);
  for (int64_t i = 0; i < bias.numel(); ++i) bias.data_ptr<float>()[i] = rng.uniform(-bound, bound);
  return {weight, bias};
}

Probe train_probe(const Labelled& train, int64_t classes, const ProbeOptions& options) {
  check_options(options);
  check_labelled(train, classes, "train");
  torch::NoGradGuard no_grad;
  const int64_t width = train.features.size(1);
  const auto rates = static_cast<int64_t>(options.rates.size());
  auto x = train.features.to(torch::kCPU, torch::kFloat32).contiguous();
  const auto labels = train.labels.to(torch::kCPU, torch::kInt64).contiguous();
  Probe probe;
  if (options.standardise) {
    probe.mean = x.mean(0);
    const auto deviation = x.std(0, /*unbiased=*/false);
    // A feature that never changes says nothing; dividing by its deviation would make it noise.
    probe.scale = torch::where(deviation > 1e-8, deviation.reciprocal(), torch::zeros_like(deviation));
    x = (x - probe.mean) * probe.scale;
  }

  // Groups of rates train side by side without ever waiting for each other. Their size depends on the number
  // of classes alone (products of about kColumns columns run well), so the thread count cannot show in the
  // result.
  constexpr int64_t kColumns = 50;
  const int64_t size = std::clamp<int64_t>((kColumns + classes - 1) / classes, 1, rates);
  const int64_t groups = (rates + size - 1) / size;
  std::vector<Group> trained(groups);
  std::mutex mutex;
  int64_t epochs_done = 0;
  at::parallel_for(0, groups, 1, [&](int64_t begin, int64_t end) {
    torch::NoGradGuard no_grad_here;
    OneThread one_thread;
    for (int64_t g = begin; g < end; ++g) {
      const std::vector<double> some(options.rates.begin() + g * size,
                                     options.rates.begin() + std::min(rates, (g + 1) * size));
      trained[g] = train_group(x, labels, classes, some, options, [&] {
        if (!options.progress) return;
        const std::lock_guard lock(mutex);
        options.progress(static_cast<double>(++epochs_done) / static_cast<double>(groups * options.epochs));
      });
    }
  });
  std::vector<torch::Tensor> weights, biases;
  for (const Group& g : trained) {
    weights.push_back(g.weight.t().reshape({-1, classes, width}));
    biases.push_back(g.bias.view({-1, classes}));
  }
  probe.weight = torch::cat(weights).contiguous();
  probe.bias = torch::cat(biases).contiguous();
  return probe;
}

ProbeResult fit_probe(const Labelled& train, int64_t classes, const ProbeOptions& options) {
  check_options(options);
  check_labelled(train, classes, "train");
  check_classes(train);
  return fit_honestly(train, classes, options);
}

ProbeResult linear_probe(const Labelled& train, const Labelled& test, int64_t classes,
                         const ProbeOptions& options) {
  if (options.protocol == ProbeProtocol::kHonest) {
    ProbeResult result = fit_probe(train, classes, options);
    check_labelled(test, classes, "test");
    result.test = score(test.labels, result.probe.predict(test.features)[0], classes);
    return result;
  }
  check_options(options);
  check_labelled(train, classes, "train");
  check_classes(train);
  check_labelled(test, classes, "test");
  const Probe all = train_probe(train, classes, options);
  ProbeResult result;
  result.protocol = options.protocol;
  result.rates = options.rates;
  result.grid_accuracy = accuracies(all, test);
  result.best = best_of(result.grid_accuracy);
  result.probe = all.only(result.best);
  result.test = score(test.labels, result.probe.predict(test.features)[0], classes);
  return result;
}

std::pair<torch::Tensor, torch::Tensor> stratified_split(const torch::Tensor& labels, double fraction,
                                                         uint64_t seed) {
  const auto classes = data::shuffled_rows(
      labels, [&](int64_t label) { return stream(seed, Use::kSplit, static_cast<uint64_t>(label)); });
  return data::split_classes(classes, [&](int64_t, int64_t size) {
    const auto count = static_cast<int64_t>(std::llround(fraction * static_cast<double>(size)));
    return size < 2 ? 0 : std::clamp<int64_t>(count, 1, size - 1);
  });
}

torch::Tensor draw_per_class(const torch::Tensor& labels, int64_t per_class, uint64_t seed) {
  const auto classes = data::shuffled_rows(
      labels, [&](int64_t label) { return stream(seed, Use::kDraw, static_cast<uint64_t>(label)); });
  return data::split_classes(
             classes,
             [&](int64_t label, int64_t size) {
               if (size < per_class)
                 core::usage_error(
                     "eval.linear",
                     fmt::format("{} labels per class wanted, but class {} has {} train images; "
                                 "use {} or fewer",
                                 per_class, label, size, size));
               return per_class;
             })
      .second;
}

std::vector<LabelEfficiency> label_efficiency(const Labelled& train, const Labelled& test, int64_t classes,
                                              const std::vector<int64_t>& labels_per_class, int draws,
                                              const ProbeOptions& options) {
  if (draws < 1) core::usage_error("eval.linear", fmt::format("{} draws of labels; use 1 or more", draws));
  std::vector<LabelEfficiency> out;
  const double total = static_cast<double>(labels_per_class.size()) * draws;
  double done = 0;
  for (int64_t count : labels_per_class) {
    if (count < 1) core::usage_error("eval.linear", fmt::format("{} labels per class; use 1 or more", count));
    LabelEfficiency row{count, {}, {}};
    for (int d = 0; d < draws; ++d) {
      ProbeOptions one = options;
      one.seed = options.seed + static_cast<uint64_t>(d);
      if (options.progress) one.progress = [&](double share) { options.progress((done + share) / total); };
      const Labelled few = take(train, draw_per_class(train.labels, count, one.seed));
      row.accuracies.push_back(linear_probe(few, test, classes, one).test.accuracy);
      done += 1;
    }
    row.accuracy = spread(row.accuracies);
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace ebclr::eval
