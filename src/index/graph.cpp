#include "index/graph.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <queue>
#include <thread>

// Our own product serves all instruction sets; the header would take the compiler's.
#define NO_MANUAL_VECTORIZATION
#include <hnswlib/hnswlib.h>

#include "core/error.h"

namespace ebclr::index {
namespace {

float one_minus_product(const void* a, const void* b, const void* n) {
  return 1 - inner_product(static_cast<const float*>(a), static_cast<const float*>(b),
                           *static_cast<const size_t*>(n));
}

/// hnswlib's idea of a metric.
class ProductSpace : public hnswlib::SpaceInterface<float> {
 public:
  explicit ProductSpace(size_t dim) : dim_(dim) {}
  size_t get_data_size() override { return dim_ * sizeof(float); }
  hnswlib::DISTFUNC<float> get_dist_func() override { return one_minus_product; }
  void* get_dist_func_param() override { return &dim_; }

 private:
  size_t dim_;
};

/// Nodes that a search has met; a fresh number per search instead of clearing.
class Visited {
 public:
  void start(size_t n) {
    if (marks_.size() != n || ++now_ == 0) {
      marks_.assign(n, 0);
      now_ = 1;
    }
  }
  bool first_time(int64_t i) {
    auto& m = marks_[static_cast<size_t>(i)];
    const bool fresh = m != now_;
    m = now_;
    return fresh;
  }

 private:
  std::vector<uint16_t> marks_;
  uint16_t now_ = 0;
};

}  // namespace

Graph build_graph(const torch::Tensor& features, const GraphOptions& options) {
  const int64_t n = features.size(0), d = features.size(1);
  TORCH_CHECK(features.is_contiguous() && features.scalar_type() == torch::kFloat32 && n > 0);
  ProductSpace space(static_cast<size_t>(d));
  hnswlib::HierarchicalNSW<float> built(&space, static_cast<size_t>(n), static_cast<size_t>(options.links),
                                        static_cast<size_t>(options.effort), options.seed + 100);
  const auto* data = features.data_ptr<float>();
  built.addPoint(data, 0);
  const int threads = options.threads > 0 ? options.threads : at::get_num_threads();
  std::atomic<int64_t> next{1};
  std::atomic<bool> stop{false};
  std::exception_ptr failure;
  std::mutex lock;
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      try {
        for (int64_t i; !stop && (i = next++) < n;) {
          built.addPoint(data + i * d, static_cast<size_t>(i));
          if (t == 0 && options.progress) options.progress(static_cast<double>(i) / static_cast<double>(n));
        }
      } catch (...) {
        stop = true;
        const std::lock_guard guard(lock);
        failure = std::current_exception();
      }
    });
  for (auto& t : team) t.join();
  if (failure) std::rethrow_exception(failure);

  // Threads decide hnswlib's inner numbers; ours are the rows.
  const auto row = [&](hnswlib::tableint inner) {
    return static_cast<int32_t>(built.getExternalLabel(inner));
  };
  Graph g;
  g.degree = 2 * options.links;
  g.entry = row(built.enterpoint_node_);
  g.top = built.maxlevel_;
  g.links = torch::zeros({n, g.degree + 1}, torch::kInt32);
  g.upper_first = torch::zeros({n + 1}, torch::kInt64);
  auto* first = g.upper_first.data_ptr<int64_t>();
  std::vector<hnswlib::tableint> inner_of(static_cast<size_t>(n));
  for (hnswlib::tableint i = 0; i < static_cast<hnswlib::tableint>(n); ++i)
    inner_of[static_cast<size_t>(row(i))] = i;
  for (int64_t i = 0; i < n; ++i)
    first[i + 1] = first[i] + built.element_levels_[inner_of[static_cast<size_t>(i)]];
  g.upper = torch::zeros({first[n], options.links + 1}, torch::kInt32);
  const auto copy = [&](hnswlib::linklistsizeint* from, int32_t* to) {
    to[0] = built.getListCount(from);
    const auto* neighbours = reinterpret_cast<const hnswlib::tableint*>(from + 1);
    for (int32_t k = 0; k < to[0]; ++k) to[1 + k] = row(neighbours[k]);
  };
  for (int64_t i = 0; i < n; ++i) {
    const auto inner = inner_of[static_cast<size_t>(i)];
    copy(built.get_linklist0(inner), g.links.data_ptr<int32_t>() + i * (g.degree + 1));
    for (int64_t layer = 1; layer <= first[i + 1] - first[i]; ++layer)
      copy(built.get_linklist(inner, static_cast<int>(layer)),
           g.upper.data_ptr<int32_t>() + (first[i] + layer - 1) * (options.links + 1));
  }
  return g;
}

std::vector<Hit> search_graph(const Index& index, const float* query, int64_t k, int64_t effort) {
  const auto& g = index.graph();
  const int64_t n = index.size();
  const auto d = static_cast<size_t>(index.info().dim);
  effort = std::max(effort, k);
  const auto nearness = [&](int64_t i) {
    if (i < 0 || i >= n)
      core::usage_error("index", index.file().string() + ": damaged (a link leads outside); make it anew");
    return inner_product(query, index.row(i), d);
  };
  Hit at{g.entry, nearness(g.entry)};
  for (int64_t layer = g.top; layer > 0; --layer)
    for (bool moved = true; moved;) {
      moved = false;
      for (const int32_t next : index.links(at.row, layer))
        if (const float s = nearness(next); s > at.similarity) {
          at = {next, s};
          moved = true;
        }
    }
  thread_local Visited visited;
  visited.start(static_cast<size_t>(n));
  visited.first_time(at.row);
  const auto nearer = [](const Hit& a, const Hit& b) { return a.similarity > b.similarity; };
  const auto farther = [](const Hit& a, const Hit& b) { return a.similarity < b.similarity; };
  std::priority_queue<Hit, std::vector<Hit>, decltype(farther)> open(farther);  // nearest on top
  std::priority_queue<Hit, std::vector<Hit>, decltype(nearer)> best(nearer);    // farthest on top
  open.push(at);
  best.push(at);
  while (!open.empty()) {
    const Hit here = open.top();
    if (static_cast<int64_t>(best.size()) >= effort && here.similarity < best.top().similarity) break;
    open.pop();
    const auto neighbours = index.links(here.row, 0);
    for (const int32_t next : neighbours) {
      if (next < 0 || next >= n || !visited.first_time(next)) continue;
      const Hit hit{next, nearness(next)};
      if (static_cast<int64_t>(best.size()) < effort || hit.similarity > best.top().similarity) {
        open.push(hit);
        best.push(hit);
        if (static_cast<int64_t>(best.size()) > effort) best.pop();
      }
    }
  }
  while (static_cast<int64_t>(best.size()) > k) best.pop();
  std::vector<Hit> out(best.size());
  for (auto it = out.rbegin(); it != out.rend(); ++it, best.pop()) *it = best.top();
  return out;
}

}  // namespace ebclr::index
