#include "index/search.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/error.h"
#include "ebm/objective.h"
#include "eval/matmul.h"

namespace ebclr::index {
namespace {

constexpr int64_t kRowsAtOnce = 65536;

// Nearest rows of each query by one matrix product per block: rows int64 [Q, k], similarities float [Q, k].
std::pair<torch::Tensor, torch::Tensor> exact(const torch::Tensor& features, const torch::Tensor& queries,
                                              int64_t k) {
  torch::Tensor values, rows;
  for (int64_t i = 0; i < features.size(0); i += kRowsAtOnce) {
    const auto block = features.narrow(0, i, std::min(kRowsAtOnce, features.size(0) - i));
    auto scores = torch::empty({queries.size(0), block.size(0)});
    eval::matmul(queries, block.t(), scores);
    auto [v, r] = scores.topk(std::min(k, block.size(0)), 1);
    r += i;
    if (values.defined()) {
      v = torch::cat({values, v}, 1);
      r = torch::cat({rows, r}, 1);
    }
    // Equal similarities go to the smaller row, whatever the blocks.
    std::tie(values, rows) = std::pair(v, r);
    if (values.size(1) > k || i + kRowsAtOnce >= features.size(0)) {
      const auto [order_rows, by_row] = rows.sort(1);
      const auto sorted = values.gather(1, by_row);
      const auto [best, pick] = sorted.sort(/*stable=*/true, 1, /*descending=*/true);
      values = best.narrow(1, 0, std::min(k, best.size(1))).contiguous();
      rows = order_rows.gather(1, pick).narrow(1, 0, values.size(1)).contiguous();
    }
  }
  return {rows, values};
}

}  // namespace

std::vector<std::vector<Hit>> search(const Index& index, const torch::Tensor& queries,
                                     const SearchOptions& o) {
  torch::NoGradGuard no_grad;
  if (queries.dim() != 2 || queries.size(1) != index.info().dim)
    core::usage_error("search", fmt::format("queries of {} values; the index holds features of {}",
                                            queries.dim() == 2 ? queries.size(1) : 0, index.info().dim));
  // Products of rows of length 1 are 1.0000001 now and then.
  const auto cosine = [](float product) { return std::clamp(product, -1.F, 1.F); };
  const int64_t k = std::min(o.top, index.size());
  std::vector<std::vector<Hit>> out(static_cast<size_t>(queries.size(0)));
  if (k < 1) return out;
  const auto q = ebm::unit_rows(queries.to(torch::kFloat32)).contiguous();
  if (index.graph().empty() || o.exact) {
    const auto [rows, values] = exact(index.features(), q, k);
    for (int64_t i = 0; i < q.size(0); ++i)
      for (int64_t j = 0; j < k; ++j)
        out[static_cast<size_t>(i)].push_back(
            {rows.data_ptr<int64_t>()[i * k + j], cosine(values.data_ptr<float>()[i * k + j])});
    return out;
  }
  at::parallel_for(0, q.size(0), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      auto& hits = out[static_cast<size_t>(i)];
      hits = search_graph(index, q.data_ptr<float>() + i * q.size(1), k, o.effort);
      for (auto& h : hits) h.similarity = cosine(h.similarity);
    }
  });
  return out;
}

torch::Tensor combine(const torch::Tensor& wanted, const torch::Tensor& unwanted) {
  auto q = ebm::unit_rows(wanted).mean(0, true);
  // Half of the unwanted direction (Rocchio): enough to turn, too little to flee.
  if (unwanted.defined() && unwanted.size(0) > 0) q = q - 0.5 * ebm::unit_rows(unwanted).mean(0, true);
  return ebm::unit_rows(q);
}

AllNeighbours all_neighbours(const Index& index, int64_t k, const std::function<void(double)>& progress) {
  torch::NoGradGuard no_grad;
  const auto features = index.features();
  const int64_t n = features.size(0);
  k = std::min(k, n - 1);
  AllNeighbours out{torch::empty({n, std::max<int64_t>(k, 0)}, torch::kInt64),
                    torch::empty({n, std::max<int64_t>(k, 0)})};
  if (k < 1) return out;
  constexpr int64_t at_once = 256;
  for (int64_t i = 0; i < n; i += at_once) {
    const int64_t count = std::min(at_once, n - i);
    const auto queries = features.narrow(0, i, count);
    const auto hits = search(index, queries, {.top = k + 1});
    for (int64_t r = 0; r < count; ++r) {
      int64_t taken = 0;
      for (const auto& h : hits[static_cast<size_t>(r)]) {
        if (h.row == i + r || taken == k) continue;
        out.rows.data_ptr<int64_t>()[(i + r) * k + taken] = h.row;
        out.similarities.data_ptr<float>()[(i + r) * k + taken++] = h.similarity;
      }
      for (; taken < k; ++taken) {  // a graph may find fewer
        out.rows.data_ptr<int64_t>()[(i + r) * k + taken] = i + r;
        out.similarities.data_ptr<float>()[(i + r) * k + taken] = -1;
      }
    }
    if (progress) progress(static_cast<double>(i + count) / static_cast<double>(n));
  }
  return out;
}

}  // namespace ebclr::index
