#include "index/duplicates.h"

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "data/walk.h"
#include "index/search.h"

namespace ebclr::index {
namespace fs = std::filesystem;
namespace {

constexpr int kSide = static_cast<int>(kSmallSide);

// Correlation of b with the part of a that starts at (x, y) (pixels of a) and whose pixels are `scale` of
// a's, where both are there; -1 when they share less than two thirds of b.
double correlate(const uint8_t* a, const uint8_t* b, double scale, double x, double y) {
  double n = 0, sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
  for (int j = 0; j < kSide; ++j) {
    const double ay = y + (j + 0.5) * scale - 0.5;
    if (ay < -0.5 || ay > kSide - 0.5) continue;
    const double cy = std::clamp(ay, 0.0, kSide - 1.001);
    const int iy = static_cast<int>(cy);
    const double fy = cy - iy;
    for (int i = 0; i < kSide; ++i) {
      const double ax = x + (i + 0.5) * scale - 0.5;
      if (ax < -0.5 || ax > kSide - 0.5) continue;
      const double cx = std::clamp(ax, 0.0, kSide - 1.001);
      const int ix = static_cast<int>(cx);
      const double fx = cx - ix;
      const uint8_t* p = a + iy * kSide + ix;
      const double va =
          (1 - fy) * ((1 - fx) * p[0] + fx * p[1]) + fy * ((1 - fx) * p[kSide] + fx * p[kSide + 1]);
      const double vb = b[j * kSide + i];
      n += 1;
      sa += va;
      sb += vb;
      saa += va * va;
      sbb += vb * vb;
      sab += va * vb;
    }
  }
  if (n < kSide * kSide * 2 / 3.0) return -1;
  const double va = saa - sa * sa / n, vb = sbb - sb * sb / n, cov = sab - sa * sb / n;
  // Pictures without contrast agree when they have the same tone.
  if (va < n || vb < n) return va < n && vb < n && std::abs(sa - sb) / n < 3 ? 1 : -1;
  return cov / std::sqrt(va * vb);
}

double best_part(const uint8_t* a, const uint8_t* b) {
  double best = -1, scale = 1, x = 0, y = 0;
  const auto attempt = [&](double s, double u, double v) {
    const double c = correlate(a, b, s, u, v);
    if (c > best) best = c, scale = s, x = u, y = v;
  };
  // Coarse: b shows 100, 93, 87 or 80 % of a's side, anywhere inside; then finer around the best.
  for (const double s : {1.0, 0.93, 0.87, 0.8}) {
    const double room = (1 - s) * kSide;
    const int steps = s == 1.0 ? 1 : 3;
    for (int j = 0; j < steps; ++j)
      for (int i = 0; i < steps; ++i)
        attempt(s, steps == 1 ? 0 : room * i / (steps - 1), steps == 1 ? 0 : room * j / (steps - 1));
  }
  if (best > 0.5 && best < 0.995)
    for (double step = 1.5; step > 0.3; step *= 0.5)
      for (bool moved = true; moved;) {
        const double s = scale, u = x, v = y, before = best;
        for (const double d : {-1.0, 1.0}) {
          attempt(s, u + d * step, v);
          attempt(s, u, v + d * step);
          const double t = std::clamp(s + d * step / kSide, 0.75, 1.05);
          attempt(t, u - (t - s) * kSide / 2, v - (t - s) * kSide / 2);
        }
        moved = best > before + 1e-6;
      }
  return best;
}

/// Sets that grow together.
class Union {
 public:
  explicit Union(int64_t n) : parent_(static_cast<size_t>(n)) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int64_t root(int64_t i) {
    while (parent_[static_cast<size_t>(i)] != i)
      i = parent_[static_cast<size_t>(i)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(i)])];
    return i;
  }
  void join(int64_t a, int64_t b) { parent_[static_cast<size_t>(root(a))] = root(b); }

 private:
  std::vector<int64_t> parent_;
};

}  // namespace

double agreement(const uint8_t* a, const uint8_t* b) {
  return std::max(best_part(a, b), best_part(b, a));
}

uint64_t perceptual_hash(const uint8_t* small) {
  // The 8 x 8 lowest frequencies against their median, the constant one left out of it.
  std::array<double, 64> low{};
  for (int v = 0; v < 8; ++v)
    for (int u = 0; u < 8; ++u)
      for (int y = 0; y < kSide; ++y)
        for (int x = 0; x < kSide; ++x)
          low[static_cast<size_t>(8 * v + u)] += small[y * kSide + x] *
                                                 std::cos(std::numbers::pi * u * (2 * x + 1) / (2 * kSide)) *
                                                 std::cos(std::numbers::pi * v * (2 * y + 1) / (2 * kSide));
  std::array<double, 63> rest{};
  std::copy(low.begin() + 1, low.end(), rest.begin());
  std::nth_element(rest.begin(), rest.begin() + 31, rest.end());
  uint64_t hash = 0;
  for (size_t i = 0; i < 64; ++i) hash |= uint64_t{low[i] > rest[31]} << i;
  return hash;
}

namespace {

// Files of a folder as they are on the disk now.
class OnDisk {
 public:
  explicit OnDisk(fs::path folder) : folder_(std::move(folder)) {
    std::error_code ec;
    real_ = fs::canonical(folder_, ec);
  }
  // Reached through a link inside the folder? What is gone is not.
  bool linked(std::string_view path) const {
    std::error_code ec;
    const auto real = fs::canonical(folder_ / path, ec);
    return !ec && real != real_ / path;
  }
  std::optional<data::FoundFile> file(std::string_view path) const {
    return data::file_at(folder_, std::string(path));
  }

 private:
  fs::path folder_, real_;
};

// Leaves one name of each file, the real one if it is among them: whoever removes "copies" must not remove
// what a link that stays leads to.
void merge_names(const Index& index, const OnDisk& disk, std::vector<int64_t>& rows) {
  std::map<data::FileId, size_t> known;
  std::vector<int64_t> out;
  for (const int64_t row : rows) {
    const auto file = disk.file(index.path(row));
    const auto [it, fresh] = file ? known.try_emplace(file->id, out.size()) : std::pair(known.end(), true);
    if (fresh) {
      out.push_back(row);
    } else if (auto& kept = out[it->second]; disk.linked(index.path(kept)) && !disk.linked(index.path(row))) {
      kept = row;
    }
  }
  rows = std::move(out);
}

[[noreturn]] void given_up() {
  throw core::Error(core::ExitCode::kInterrupted, "duplicates", "interrupted");
}

// How well the small pictures of each pair agree.
std::vector<double> agreements_of(const Index& index, const std::vector<std::pair<int64_t, int64_t>>& pairs,
                                  const std::function<bool()>& stop) {
  constexpr int64_t at_once = 64;  // pairs between two looks at `stop`: less than a tenth of a second
  std::vector<double> out(pairs.size());
  std::atomic<bool> stopped{false};
  at::parallel_for(0, static_cast<int64_t>(pairs.size()), 16, [&](int64_t from, int64_t to) {
    for (int64_t p = from; p < to; ++p) {
      if ((p - from) % at_once == 0) {
        if (stop && stop()) stopped = true;
        if (stopped) return;
      }
      const auto [a, b] = pairs[static_cast<size_t>(p)];
      out[static_cast<size_t>(p)] = agreement(index.small(a), index.small(b));
    }
  });
  if (stopped) given_up();
  return out;
}

}  // namespace

std::vector<DuplicateGroup> find_duplicates(const Index& index, const DuplicateOptions& o) {
  const int64_t n = index.size();
  Union sets(n);
  std::map<std::array<uint8_t, 32>, int64_t> first;
  for (int64_t i = 0; i < n; ++i) {
    const auto [it, fresh] = first.emplace(index.record(i).sha256, i);
    if (!fresh) sets.join(i, it->second);
  }
  const auto near = all_neighbours(index, o.neighbours, [&](double share) {
    if (o.stop && o.stop()) given_up();
    if (o.progress) o.progress(share);
  });
  std::set<std::pair<int64_t, int64_t>> unique;
  const int64_t k = near.rows.size(1);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const int64_t other = near.rows.data_ptr<int64_t>()[i * k + j];
      if (other != i && near.similarities.data_ptr<float>()[i * k + j] >= o.similarity &&
          index.record(i).sha256 != index.record(other).sha256)
        unique.emplace(std::min(i, other), std::max(i, other));
    }
  const std::vector<std::pair<int64_t, int64_t>> pairs(unique.begin(), unique.end());
  const auto agreements = agreements_of(index, pairs, o.stop);
  std::map<int64_t, double> weakest;
  std::vector<std::pair<int64_t, double>> joined;
  for (size_t p = 0; p < pairs.size(); ++p)
    if (agreements[p] >= o.agreement) {
      sets.join(pairs[p].first, pairs[p].second);
      joined.emplace_back(pairs[p].first, agreements[p]);
    }
  for (const auto& [row, value] : joined) {
    auto& w = weakest.emplace(sets.root(row), 1.0).first->second;
    w = std::min(w, value);
  }
  std::map<int64_t, DuplicateGroup> groups;
  for (int64_t i = 0; i < n; ++i) groups[sets.root(i)].rows.push_back(i);
  std::vector<DuplicateGroup> out;
  const OnDisk disk(index.info().folder);
  for (auto& [root, g] : groups) {
    if (g.rows.size() < 2) continue;
    merge_names(index, disk, g.rows);
    if (g.rows.size() < 2) continue;
    // Of equal files one that lies in the folder is kept rather than a link to one elsewhere.
    std::set<int64_t> linked;
    for (const int64_t r : g.rows)
      if (disk.linked(index.path(r))) linked.insert(r);
    std::stable_sort(g.rows.begin(), g.rows.end(), [&](int64_t a, int64_t b) {
      return std::pair(-index.record(a).bytes, linked.contains(a)) <
             std::pair(-index.record(b).bytes, linked.contains(b));
    });
    std::map<std::array<uint8_t, 32>, int64_t> before;
    for (const int64_t r : g.rows) g.exact.push_back(before[index.record(r).sha256]++ > 0);
    g.exact[0] = before[index.record(g.rows[0]).sha256] > 1;
    if (const auto it = weakest.find(root); it != weakest.end()) g.agreement = it->second;
    out.push_back(std::move(g));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.rows.size() > b.rows.size(); });
  return out;
}

}  // namespace ebclr::index
