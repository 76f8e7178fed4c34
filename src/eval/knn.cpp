#include "eval/knn.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "eval/matmul.h"

namespace ebclr::eval {
namespace {

// Single precision may swap neighbours that are equally far to seven digits: this many spare candidates are
// kept and all are measured again in double precision.
constexpr int64_t kSpare = 16;

struct Candidate {
  float score;
  int32_t index;
};

/// The best candidates of one query so far, as a buffer that is cut back to `keep` when it is full. Appending
/// is cheap and the cut is rare, which beats a heap for large K.
class Shortlist {
 public:
  void reset(int64_t keep) {
    keep_ = keep;
    items_.clear();
    items_.reserve(2 * keep + 64);
    threshold_ = -INFINITY;
    full_ = false;
  }
  /// Scans scores of train rows first, first + 1, ...: only what beats the worst kept one is looked at.
  void scan(const float* scores, int64_t count, int32_t first) {
    constexpr int64_t kLanes = 16;
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
      float best = scores[j];
      for (int64_t l = 1; l < kLanes; ++l) best = std::max(best, scores[j + l]);
      if (full_ && best <= threshold_) continue;
      for (int64_t l = 0; l < kLanes; ++l) add(scores[j + l], first + static_cast<int32_t>(j + l));
    }
    for (; j < count; ++j) add(scores[j], first + static_cast<int32_t>(j));
  }
  const std::vector<Candidate>& finish() {
    cut();
    return items_;
  }

 private:
  void add(float score, int32_t index) {
    if (std::isnan(score)) score = -INFINITY;  // an order needs comparable scores
    if (full_ && score <= threshold_) return;  // until there are enough, the worst is welcome too
    items_.push_back({score, index});
    if (static_cast<int64_t>(items_.size()) >= 2 * keep_ + 32) cut();
  }
  void cut() {
    if (static_cast<int64_t>(items_.size()) <= keep_) return;
    const auto better = [](const Candidate& a, const Candidate& b) {
      return a.score != b.score ? a.score > b.score : a.index < b.index;
    };
    std::nth_element(items_.begin(), items_.begin() + (keep_ - 1), items_.end(), better);
    items_.resize(keep_);
    threshold_ = items_.back().score;
    full_ = true;
  }

  int64_t keep_ = 0;
  float threshold_ = -INFINITY;
  bool full_ = false;  // `keep` candidates were found, and the threshold counts
  std::vector<Candidate> items_;
};

void check_search(const torch::Tensor& train, const torch::Tensor& queries, const KnnOptions& options) {
  if (options.k < 1)
    core::usage_error("eval.knn", fmt::format("K = {} neighbours; use 1 or more", options.k));
  if (train.size(0) < options.k) {
    core::usage_error("eval.knn",
                      fmt::format("K = {} neighbours wanted, but there are only {} train images; use "
                                  "--k {} or fewer",
                                  options.k, train.size(0), train.size(0)));
  }
  if (train.size(1) != queries.size(1)) {
    core::usage_error("eval.knn",
                      fmt::format("train features have {} dimensions, test features {}; use one encoder",
                                  train.size(1), queries.size(1)));
  }
  if (options.cosine && !(options.temperature > 0)) {
    core::usage_error(
        "eval.knn", fmt::format("temperature {} of a cosine vote; use a value above 0", options.temperature));
  }
}

/// A power of two that brings both below 2^40, so that squares and sums stay finite in single precision;
/// 1 for features of any ordinary size.
float shrinking(const torch::Tensor& a, const torch::Tensor& b) {
  const auto peak = [](const torch::Tensor& t) {
    return t.numel() > 0 ? t.abs().max().to(torch::kFloat64).item<double>() : 0.0;
  };
  const double largest = std::max(peak(a), peak(b));
  if (!(largest > 0x1p40) || !std::isfinite(largest)) return 1;
  return static_cast<float>(std::exp2(40 - std::ceil(std::log2(largest))));
}

double length(const float* row, int64_t width) {
  double sum = 0;
  for (int64_t d = 0; d < width; ++d) sum += static_cast<double>(row[d]) * row[d];
  return std::max(std::sqrt(sum), 1e-12);
}

/// One query's candidates measured directly in double precision, the best K of them in order. `lengths` are
/// those of the train rows (cosine only).
void measure(const std::vector<Candidate>& candidates, const float* train, const std::vector<double>& lengths,
             const float* query, int64_t width, const KnnOptions& options, int64_t* indices, double* values) {
  std::vector<std::pair<double, int64_t>> found;
  found.reserve(candidates.size());
  const double query_length = options.cosine ? length(query, width) : 1;
  const auto comparable = [](double v) { return std::isnan(v) ? INFINITY : v; };
  for (const Candidate& c : candidates) {
    const float* row = train + c.index * width;
    double sum = 0;
    if (options.cosine) {
      for (int64_t d = 0; d < width; ++d) sum += static_cast<double>(row[d]) * query[d];
      found.emplace_back(comparable(-sum / (lengths[c.index] * query_length)), c.index);
    } else {
      for (int64_t d = 0; d < width; ++d) {
        const double gap = static_cast<double>(row[d]) - query[d];
        sum += gap * gap;
      }
      found.emplace_back(comparable(std::sqrt(sum)), c.index);
    }
  }
  std::partial_sort(found.begin(), found.begin() + options.k, found.end());
  for (int64_t i = 0; i < options.k; ++i) {
    values[i] = options.cosine ? -found[i].first : found[i].first;
    indices[i] = found[i].second;
  }
}

}  // namespace

KnnOptions knn_protocol(std::string_view name) {
  if (name == "paper") return {};
  if (name == "dino") return {.protocol = "dino", .k = 20, .cosine = true, .temperature = 0.07};
  if (name == "moco") return {.protocol = "moco", .k = 200, .cosine = true, .temperature = 0.1};
  core::usage_error("eval.knn", fmt::format("unknown protocol '{}'; use paper, dino or moco", name));
}

std::string label(const KnnOptions& o) {
  return o.cosine ? fmt::format("K {}, cosine, T {}", o.k, o.temperature)
                  : fmt::format("K {}, 1/L2 distance", o.k);
}

torch::Tensor unit_rows(const torch::Tensor& rows) {
  return rows / rows.norm(2, 1, true).clamp_min(1e-12);
}

Neighbours nearest_neighbours(const torch::Tensor& train, const torch::Tensor& queries,
                              const KnnOptions& options) {
  check_search(train, queries, options);
  torch::NoGradGuard no_grad;
  // A common shift changes no distance but keeps the expansion |a|^2 - 2ab + |b|^2 from cancelling.
  const auto raw = train.to(torch::kCPU, torch::kFloat32).contiguous();
  const float shrink = shrinking(raw, queries);
  const auto near_zero = shrink == 1 ? raw : raw * shrink;
  const auto shift = options.cosine ? torch::Tensor() : near_zero.mean(0);
  const auto rows = (options.cosine ? unit_rows(near_zero) : near_zero - shift).contiguous();  // [N, D]
  const auto half_norms = options.cosine ? torch::Tensor() : rows.square().sum(1).mul(0.5);    // [N]
  const float* half = options.cosine ? nullptr : half_norms.data_ptr<float>();
  const int64_t n = rows.size(0), m = queries.size(0), width = rows.size(1);
  const int64_t keep = std::min(n, options.k + kSpare);
  std::vector<double> lengths(options.cosine ? n : 0);
  at::parallel_for(0, static_cast<int64_t>(lengths.size()), 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) lengths[i] = length(raw.data_ptr<float>() + i * width, width);
  });
  Neighbours out{torch::empty({m, options.k}, torch::kInt64), torch::empty({m, options.k}, torch::kFloat64)};
  auto* out_indices = out.indices.data_ptr<int64_t>();
  auto* out_values = out.values.data_ptr<double>();
  const int64_t query_block = std::max<int64_t>(1, options.query_block);
  const int64_t train_block = std::max<int64_t>(1, options.train_block);

  // Each thread takes the next block of queries and works on it alone: nobody waits for anybody.
  std::atomic<int64_t> next{0};
  at::parallel_for(
      0, std::min<int64_t>(at::get_num_threads(), (m + query_block - 1) / query_block), 1,
      [&](int64_t begin, int64_t end) {
        torch::NoGradGuard no_grad_here;
        OneThread one_thread;
        auto buffer = torch::empty({std::min(m, query_block) * std::min(n, train_block)});
        std::vector<Shortlist> lists(std::min(m, query_block));
        for (int64_t q = next.fetch_add(query_block); q < m; q = next.fetch_add(query_block)) {
          const int64_t count = std::min(query_block, m - q);
          const auto some = queries.narrow(0, q, count).to(torch::kCPU, torch::kFloat32).contiguous();
          const auto scaled = shrink == 1 ? some : some * shrink;
          const auto block = (options.cosine ? unit_rows(scaled) : scaled - shift).contiguous();
          for (int64_t i = 0; i < count; ++i) lists[i].reset(keep);
          for (int64_t t = 0; t < n; t += train_block) {
            const int64_t columns = std::min(train_block, n - t);
            auto scores = buffer.narrow(0, 0, count * columns).view({count, columns});
            matmul(block, rows.narrow(0, t, columns).t(), scores);
            for (int64_t i = 0; i < count; ++i) {
              float* row = scores.data_ptr<float>() + i * columns;
              // ab - |b|^2 / 2 falls as the distance grows.
              if (half) {
                for (int64_t j = 0; j < columns; ++j) row[j] -= half[t + j];
              }
              lists[i].scan(row, columns, static_cast<int32_t>(t));
            }
          }
          for (int64_t i = 0; i < count; ++i) {
            measure(lists[i].finish(), raw.data_ptr<float>(), lengths, some.data_ptr<float>() + i * width,
                    width, options, out_indices + (q + i) * options.k, out_values + (q + i) * options.k);
          }
        }
      });
  return out;
}

Neighbours nearest_neighbours_reference(const torch::Tensor& train, const torch::Tensor& queries,
                                        const KnnOptions& options) {
  check_search(train, queries, options);
  const auto a = train.to(torch::kFloat64), b = queries.to(torch::kFloat64);
  const auto scores = options.cosine ? torch::mm(unit_rows(b), unit_rows(a).t()) : torch::cdist(b, a, 2, 2);
  const auto order = scores.argsort(/*stable=*/true, 1, options.cosine).narrow(1, 0, options.k).contiguous();
  return {order, scores.gather(1, order)};
}

torch::Tensor knn_votes(const Neighbours& neighbours, const torch::Tensor& train_labels, int64_t classes,
                        const KnnOptions& options) {
  const auto weights =
      options.cosine
          // Relative to the nearest, which changes no winner and cannot overflow.
          ? ((neighbours.values - neighbours.values.narrow(1, 0, 1)) / options.temperature).exp()
          : (neighbours.values + options.epsilon).reciprocal();
  const auto labels = train_labels.index_select(0, neighbours.indices.flatten()).view_as(neighbours.indices);
  return torch::zeros({labels.size(0), classes}, torch::kFloat64).scatter_add(1, labels, weights);
}

torch::Tensor knn_predict(const Labelled& train, const torch::Tensor& queries, int64_t classes,
                          const KnnOptions& options) {
  check_labelled(train, classes, "train");
  const auto votes =
      knn_votes(nearest_neighbours(train.features, queries, options), train.labels, classes, options);
  // argmax may return any of several equal maxima; the smallest class is asked for.
  const auto best = votes.eq(votes.amax(1, true)).to(torch::kInt64);
  const auto rank = torch::arange(classes, 0, -1, torch::kInt64);
  return (best * rank).argmax(1);
}

Score knn_score(const Labelled& train, const Labelled& test, int64_t classes, const KnnOptions& options) {
  check_labelled(train, classes, "train");
  check_classes(train);
  check_labelled(test, classes, "test");
  return score(test.labels, knn_predict(train, test.features, classes, options), classes);
}

}  // namespace ebclr::eval
