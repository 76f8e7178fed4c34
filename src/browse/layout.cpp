#include "browse/layout.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "core/rng.h"
#include "eval/tsne.h"

namespace ebclr::browse {
namespace {

torch::Tensor to_unit_square(torch::Tensor p) {
  p = p.to(torch::kFloat32);
  const auto low = std::get<0>(p.min(0)), high = std::get<0>(p.max(0));
  return (p - low) / (high - low).clamp_min(1e-9);
}

}  // namespace

torch::Tensor spread_over_grid(const torch::Tensor& points, double spare) {
  const int64_t n = points.size(0);
  const auto side = static_cast<int64_t>(std::ceil(std::sqrt(spare * static_cast<double>(n))));
  const auto p = points.to(torch::kFloat32).contiguous();
  const auto* xy = p.data_ptr<float>();
  std::vector<bool> taken(static_cast<size_t>(side * side));
  auto out = torch::empty({n, 2});
  auto* to = out.data_ptr<float>();
  const auto cell = [&](float v) {
    return std::clamp<int64_t>(static_cast<int64_t>(v * static_cast<float>(side)), 0, side - 1);
  };
  for (int64_t i = 0; i < n; ++i) {
    const int64_t cx = cell(xy[2 * i]), cy = cell(xy[2 * i + 1]);
    int64_t best = -1;
    double nearest = 0;
    // Rings around the wanted cell; one more ring than the first hit, whose corners lie farther than its
    // sides.
    for (int64_t r = 0, last = 2 * side; r <= last; ++r) {
      for (int64_t y = cy - r; y <= cy + r; ++y) {
        if (y < 0 || y >= side) continue;
        const int64_t step = std::abs(y - cy) == r ? 1 : std::max<int64_t>(1, 2 * r);
        for (int64_t x = cx - r; x <= cx + r; x += step) {
          if (x < 0 || x >= side || taken[static_cast<size_t>(y * side + x)]) continue;
          const double d = std::hypot(static_cast<double>(x - cx), static_cast<double>(y - cy));
          if (best < 0 || d < nearest) best = y * side + x, nearest = d;
        }
      }
      if (best >= 0 && last == 2 * side) last = std::min<int64_t>(last, static_cast<int64_t>(nearest) + 1);
    }
    taken[static_cast<size_t>(best)] = true;
    to[2 * i] = (static_cast<float>(best % side) + 0.5f) / static_cast<float>(side);
    to[2 * i + 1] = (static_cast<float>(best / side) + 0.5f) / static_cast<float>(side);
  }
  return out;
}

torch::Tensor layout(const index::Index& index, const LayoutOptions& o) {
  torch::NoGradGuard no_grad;
  const auto features = index.features();
  const int64_t n = features.size(0);
  if (n < 8) return spread_over_grid(to_unit_square(torch::arange(n).unsqueeze(1).expand({n, 2})));
  // Every so-manieth row: paths are sorted, so that each folder has its share.
  const int64_t m = std::min(n, o.landmarks);
  const auto chosen = (torch::arange(m, torch::kFloat64) * (static_cast<double>(n) / static_cast<double>(m)))
                          .floor()
                          .to(torch::kInt64);
  const auto landmarks = features.index_select(0, chosen);
  eval::TsneOptions t;
  t.perplexity = std::min(30.0, static_cast<double>(m - 1) / 4);
  t.iterations = 500;
  if (o.progress)
    t.progress = [&](int i) { o.progress(0.9 * static_cast<double>(i) / static_cast<double>(t.iterations)); };
  const auto placed = eval::tsne(landmarks, t);
  torch::Tensor all = placed;
  if (m < n) {
    // The others: between their three nearest landmarks, the nearer the heavier.
    std::vector<torch::Tensor> parts;
    for (const auto& block : features.split(4096)) {
      const auto [similar, rows] = block.matmul(landmarks.t()).topk(std::min<int64_t>(3, m), 1);
      const auto weight = (similar * 30).softmax(1).unsqueeze(2);  // [B, 3, 1]
      parts.push_back((placed.index_select(0, rows.flatten()).view({block.size(0), -1, 2}) * weight).sum(1));
    }
    all = torch::cat(parts);
  }
  if (o.progress) o.progress(1);
  return spread_over_grid(to_unit_square(all));
}

std::vector<int64_t> along_map(const torch::Tensor& places) {
  const auto p = places.to(torch::kFloat32).contiguous();
  const auto* xy = p.data_ptr<float>();
  // The bits of both coordinates in turn, the highest first.
  const auto place = [](float x, float y) {
    const auto whole = [](float v) { return static_cast<uint64_t>(std::clamp(v, 0.0f, 1.0f) * 65535.0f); };
    const uint64_t a = whole(x), b = whole(y);
    uint64_t out = 0;
    for (int bit = 15; bit >= 0; --bit) out = out << 2 | (b >> bit & 1) << 1 | (a >> bit & 1);
    return out;
  };
  std::vector<std::pair<uint64_t, int64_t>> keyed;
  for (int64_t i = 0; i < p.size(0); ++i) keyed.emplace_back(place(xy[2 * i], xy[2 * i + 1]), i);
  std::sort(keyed.begin(), keyed.end());
  std::vector<int64_t> out;
  for (const auto& [key, row] : keyed) out.push_back(row);
  return out;
}

}  // namespace ebclr::browse
