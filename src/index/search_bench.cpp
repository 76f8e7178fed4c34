#include "index/search_bench.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/rng.h"
#include "ebm/objective.h"

namespace ebclr::index {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kInner = 24, kClusters = 1000;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

torch::Tensor normal_rows(int64_t rows, int64_t columns, uint64_t key) {
  auto out = torch::empty({rows, columns});
  core::fill_normal(key, 0, {out.data_ptr<float>(), static_cast<size_t>(out.numel())});
  return out;
}

}  // namespace

void make_bench_index(const std::filesystem::path& path, int64_t count, int64_t dim, uint64_t seed,
                      const std::function<void(double)>& progress) {
  Contents c;
  c.info = {.fingerprint = "made up", .run = "none", .method = "none", .version = "bench", .folder = "none"};
  c.info.count = count;
  c.info.dim = dim;
  const auto map = normal_rows(kInner, dim, core::make_key({seed, 1})),
             centres = normal_rows(kClusters, kInner, core::make_key({seed, 2}));
  c.features = torch::empty({count, dim});
  constexpr int64_t at_once = 20000;
  for (int64_t i = 0; i < count; i += at_once) {
    const int64_t n = std::min(at_once, count - i);
    const auto key = static_cast<uint64_t>(i);
    const auto cluster = (torch::arange(i, i + n) * 7919) % kClusters;
    const auto z =
        centres.index_select(0, cluster) + 0.7 * normal_rows(n, kInner, core::make_key({seed, 3, key}));
    c.features.narrow(0, i, n).copy_(
        ebm::unit_rows(z.matmul(map) + 0.5 * normal_rows(n, dim, core::make_key({seed, 4, key}))));
  }
  c.small = torch::zeros({count, kSmallSide, kSmallSide}, torch::kUInt8);
  c.records.resize(static_cast<size_t>(count));
  c.thumbnails.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "%09ld", static_cast<long>(i));
    c.paths.emplace_back(name);
  }
  c.graph = build_graph(c.features, {.seed = seed, .progress = progress});
  write_index(path, c);
}

SearchBench bench_search(const std::filesystem::path& path, int64_t queries, int64_t effort) {
  SearchBench b{.queries = queries, .effort = effort};
  const auto start = Clock::now();
  const auto index = Index::open(path);
  b.open_ms = ms_since(start);
  b.count = index.size();
  b.dim = index.info().dim;
  if (index.graph().empty()) core::usage_error("bench", path.string() + ": has no graph to measure");
  const auto rows = (torch::arange(queries) * std::max<int64_t>(1, b.count / queries)) % b.count;
  auto q = torch::empty({queries, b.dim});
  for (int64_t i = 0; i < queries; ++i)
    std::copy_n(index.row(rows[i].item<int64_t>()), b.dim, q.data_ptr<float>() + i * b.dim);
  q = ebm::unit_rows(q + 0.3 / std::sqrt(static_cast<double>(b.dim)) * normal_rows(queries, b.dim, 99))
          .contiguous();
  const auto truth = search(index, q, {.top = 10, .exact = true});
  const auto one = Clock::now();
  search(index, q.narrow(0, 0, 1), {.top = 10, .exact = true});
  b.exact_ms = ms_since(one);
  // Twice: the first time brings the file into memory and checks it.
  std::vector<double> times;
  int64_t found = 0;
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t i = 0; i < queries; ++i) {
      const auto begin = Clock::now();
      const auto hits = search_graph(index, q.data_ptr<float>() + i * b.dim, 10, effort);
      if (pass == 0) continue;
      times.push_back(ms_since(begin));
      for (const auto& h : hits)
        found += std::any_of(truth[static_cast<size_t>(i)].begin(), truth[static_cast<size_t>(i)].end(),
                             [&](const Hit& t) { return t.row == h.row; });
    }
  std::sort(times.begin(), times.end());
  b.graph_ms = times[times.size() / 2];
  b.graph_ms_99 = times[times.size() * 99 / 100];
  b.recall = static_cast<double>(found) / static_cast<double>(10 * queries);
  return b;
}

}  // namespace ebclr::index
