#include "eval/clusters.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "core/rng.h"
#include "eval/knn.h"

namespace ebclr::eval {
namespace {

torch::Tensor directions_of(const torch::Tensor& features) {
  return unit_rows(features.to(torch::kCPU, torch::kFloat32));
}

// k-means++: each further start is drawn in proportion to its distance from those already chosen.
torch::Tensor first_centres(const torch::Tensor& x, int64_t k, uint64_t seed) {
  core::Rng rng(seed, core::Stream::kEval, {0xC1});
  std::vector<int64_t> chosen = {static_cast<int64_t>(rng.below(static_cast<uint64_t>(x.size(0))))};
  auto away = torch::full({x.size(0)}, 4.0f);
  while (static_cast<int64_t>(chosen.size()) < k) {
    away = torch::minimum(away, (1 - x.matmul(x[chosen.back()])).clamp_min(0));
    const auto sums = away.to(torch::kFloat64).cumsum(0);
    const double total = sums[-1].item<double>();
    if (!(total > 0)) break;  // all rows are alike
    const auto at = torch::searchsorted(sums, torch::full({1}, total * rng.uniform64(), torch::kFloat64));
    chosen.push_back(std::min(at.item<int64_t>(), x.size(0) - 1));
  }
  return x.index_select(0, torch::tensor(chosen, torch::kInt64));
}

}  // namespace

Clusters cluster(const torch::Tensor& features, int64_t k, uint64_t seed, int iterations) {
  const auto x = directions_of(features);
  Clusters out;
  out.centres = first_centres(x, std::min(k, x.size(0)), seed);
  for (int i = 0; i < iterations; ++i) {
    const auto of = x.matmul(out.centres.t()).argmax(1);
    if (out.of.defined() && torch::equal(of, out.of)) break;
    out.of = of;
    const auto sums = torch::zeros_like(out.centres).index_add_(0, of, x);
    const auto norms = sums.norm(2, 1, true);
    out.centres = torch::where(norms > 1e-6, sums / norms.clamp_min(1e-12), out.centres);
  }
  const auto likeness = x.matmul(out.centres.t()).contiguous();  // [N, K]
  out.of = likeness.argmax(1).contiguous();
  out.members.resize(static_cast<size_t>(out.centres.size(0)));
  const auto* group = out.of.data_ptr<int64_t>();
  for (int64_t i = 0; i < x.size(0); ++i) out.members[static_cast<size_t>(group[i])].push_back(i);
  const auto* value = likeness.data_ptr<float>();
  const int64_t groups = likeness.size(1);
  for (size_t g = 0; g < out.members.size(); ++g)
    std::stable_sort(out.members[g].begin(), out.members[g].end(), [&](int64_t a, int64_t b) {
      return value[a * groups + static_cast<int64_t>(g)] > value[b * groups + static_cast<int64_t>(g)];
    });
  // The largest group first, and the numbers follow.
  std::vector<int64_t> order(out.members.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return out.members[static_cast<size_t>(a)].size() > out.members[static_cast<size_t>(b)].size();
  });
  std::vector<std::vector<int64_t>> members;
  for (const auto g : order)
    if (!out.members[static_cast<size_t>(g)].empty())
      members.push_back(std::move(out.members[static_cast<size_t>(g)]));
  out.members = std::move(members);
  const auto rows = torch::tensor(
      std::vector<int64_t>(order.begin(), order.begin() + static_cast<ptrdiff_t>(out.members.size())),
      torch::kInt64);
  out.centres = out.centres.index_select(0, rows);
  for (size_t g = 0; g < out.members.size(); ++g)
    for (const auto i : out.members[g]) out.of.data_ptr<int64_t>()[i] = static_cast<int64_t>(g);
  return out;
}

torch::Tensor nearest_rows(const torch::Tensor& features, const torch::Tensor& rows, int64_t k) {
  const auto x = directions_of(features);
  auto likeness = x.index_select(0, rows).matmul(x.t());  // [rows, N]
  likeness.scatter_(1, rows.view({-1, 1}), -2.0f);
  return std::get<1>(likeness.topk(std::min(k, std::max<int64_t>(x.size(0) - 1, 0)), 1));
}

}  // namespace ebclr::eval
