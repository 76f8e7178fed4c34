#include "data/image_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "core/error.h"
#include "core/rng.h"
#include "data/class_rows.h"
#include "data/image_cache.h"

namespace ebclr::data {

namespace {

constexpr std::string_view kImageSetComponent = "data.set";

// What the draws of kSubset are for.
constexpr uint64_t kLimitDraw = 1, kHoldOutDraw = 2;

// Indices per label, each list in a seeded order. Unlabelled images are a group of their own (kNoLabel).
ClassRows shuffled_groups(const torch::Tensor& labels, uint64_t seed, uint64_t draw) {
  return shuffled_rows(labels, [&](int64_t label) {
    return core::Rng(seed, core::Stream::kSubset, {draw, static_cast<uint64_t>(label)});
  });
}

// How many of `total` each group gives when shares follow sizes: largest remainders round up.
std::vector<int64_t> proportional(const std::vector<int64_t>& sizes, int64_t total) {
  const auto n = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  std::vector<int64_t> counts(sizes.size());
  std::vector<std::pair<double, size_t>> rest;
  int64_t given = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double share = static_cast<double>(total) * static_cast<double>(sizes[i]) / n;
    counts[i] = std::min(sizes[i], static_cast<int64_t>(share));
    given += counts[i];
    rest.emplace_back(-(share - std::floor(share)), i);
  }
  std::sort(rest.begin(), rest.end());
  for (size_t k = 0; given < total; k = (k + 1) % rest.size()) {
    const size_t i = rest[k].second;
    if (counts[i] == sizes[i]) continue;
    ++counts[i];
    ++given;
  }
  return counts;
}

std::vector<size_t> each_alone(int64_t count) {
  std::vector<size_t> first(static_cast<size_t>(count));
  std::iota(first.begin(), first.end(), size_t{0});
  return first;
}

torch::Tensor labels_of(const ImageSet& set) {
  return set.labels.defined() ? set.labels : torch::full({set.size()}, kNoLabel, torch::kInt64);
}

}  // namespace

bool ImageSet::labelled() const {
  return size() > 0 && labels.defined() && labels.min().item<int64_t>() != kNoLabel;
}

ImageSet select(const ImageSet& set, const torch::Tensor& indices) {
  ImageSet out;
  out.name = set.name;
  out.split = set.split;
  out.class_names = set.class_names;
  out.coarse_names = set.coarse_names;
  out.notes = set.notes;
  const auto rows = indices.to(torch::kInt64).contiguous();
  if (rows.numel() > 0) {
    const auto low = rows.min().item<int64_t>(), high = rows.max().item<int64_t>();
    if (low < 0 || high >= set.size())
      core::usage_error(kImageSetComponent,
                        fmt::format("image {} of a set of {}", low < 0 ? low : high, set.size()));
  }
  out.pixels = set.pixels.index_select(0, rows);
  if (set.large.defined()) out.large = set.large.index_select(0, rows);
  if (set.labels.defined()) out.labels = set.labels.index_select(0, rows);
  if (set.coarse_labels.defined()) out.coarse_labels = set.coarse_labels.index_select(0, rows);
  const auto take = [&](const std::vector<std::string>& from, std::vector<std::string>& to) {
    const auto* p = rows.data_ptr<int64_t>();
    for (int64_t i = 0; !from.empty() && i < rows.numel(); ++i) to.push_back(from[static_cast<size_t>(p[i])]);
  };
  take(set.files, out.files);
  take(set.digests, out.digests);
  take(set.splits, out.splits);
  return out;
}

namespace {

// Parts of one mapped file that follow each other are one tensor; `keep` holds the file.
torch::Tensor concatenated(const std::vector<torch::Tensor>& parts,
                           const std::shared_ptr<const MappedFile>& keep) {
  int64_t rows = 0;
  bool adjacent = keep != nullptr;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0)
      adjacent &= parts[i - 1].data_ptr<uint8_t>() + parts[i - 1].numel() == parts[i].data_ptr<uint8_t>();
    rows += parts[i].size(0);
  }
  if (!adjacent) return torch::cat(parts);
  auto sizes = parts[0].sizes().vec();
  sizes[0] = rows;
  return torch::from_blob(
      parts[0].data_ptr<uint8_t>(), sizes, [keep](void*) {}, torch::kUInt8);
}

}  // namespace

ImageSet joined(const std::vector<const ImageSet*>& sets) {
  std::vector<const ImageSet*> full;
  for (const auto* s : sets)
    if (s->size() > 0) full.push_back(s);
  if (full.empty()) return *sets.at(0);
  ImageSet out;
  out.name = full[0]->name;
  out.split = full.size() == 1 ? full[0]->split : "all";
  out.mapping = full[0]->mapping;
  std::vector<torch::Tensor> pixels, large, labels;
  const bool files = !full[0]->files.empty(), larger = full[0]->large.defined();
  const bool digests =
      std::all_of(full.begin(), full.end(), [](const auto* s) { return !s->digests.empty(); });
  for (const auto* s : full) {
    pixels.push_back(s->pixels);
    if (larger) large.push_back(s->large);
    labels.push_back(labels_of(*s));
    if (s->class_names.size() > out.class_names.size()) out.class_names = s->class_names;
    out.splits.insert(out.splits.end(), static_cast<size_t>(s->size()), s->split);
    out.notes.insert(out.notes.end(), s->notes.begin(), s->notes.end());
    if (digests) out.digests.insert(out.digests.end(), s->digests.begin(), s->digests.end());
    for (int64_t i = 0; i < s->size(); ++i)
      out.files.push_back(files ? s->files[static_cast<size_t>(i)]
                                : fmt::format("{}/{}/{}", s->name, s->split, i));
  }
  out.pixels = concatenated(pixels, out.mapping);
  if (larger) out.large = concatenated(large, out.mapping);
  out.labels = torch::cat(labels);
  return out;
}

ImageSet limit(const ImageSet& set, int64_t limit, uint64_t seed) {
  if (limit < 0)
    core::usage_error(kImageSetComponent, fmt::format("limit is {}; expected 0 (all) or more", limit));
  if (limit == 0 || limit >= set.size()) return set;
  return select(set, limit_indices(labels_of(set), limit, seed));
}

torch::Tensor limit_indices(const torch::Tensor& labels, int64_t limit, uint64_t seed) {
  const int64_t size = labels.numel();
  if (limit <= 0 || limit >= size) return torch::arange(size, torch::kInt64);
  auto groups = shuffled_groups(labels, seed, kLimitDraw);
  std::vector<int64_t> taken;
  int64_t wanted = limit;
  // Unlabelled images keep their share of the set; the labelled rest is balanced.
  if (auto it = groups.find(kNoLabel); it != groups.end()) {
    const auto none = static_cast<int64_t>(it->second.size());
    const int64_t keep = groups.size() == 1 ? limit : proportional({none, size - none}, limit)[0];
    taken.insert(taken.end(), it->second.begin(), it->second.begin() + keep);
    wanted -= keep;
    groups.erase(it);
  }
  // Round after round one image per class, so that smaller limits are subsets of larger ones and an exhausted
  // class leaves its turns to the others. The order of classes inside a round is seeded.
  std::vector<const std::vector<int64_t>*> classes;
  for (const auto& [label, indices] : groups) classes.push_back(&indices);
  shuffle(classes, core::Rng(seed, core::Stream::kSubset, {kLimitDraw, ~uint64_t{1}}));
  for (size_t round = 0; wanted > 0; ++round) {
    for (const auto* indices : classes) {
      if (wanted == 0 || round >= indices->size()) continue;
      taken.push_back((*indices)[round]);
      --wanted;
    }
  }
  return sorted_rows(std::move(taken));
}

std::vector<size_t> first_of_equals(const ImageSet& set) {
  auto first = each_alone(set.size());
  std::unordered_map<std::string_view, size_t> known;
  for (size_t i = 0; i < set.digests.size(); ++i) first[i] = known.emplace(set.digests[i], i).first->second;
  return first;
}

std::pair<torch::Tensor, torch::Tensor> hold_out(const ImageSet& set, double fraction, uint64_t seed) {
  return hold_out(labels_of(set), first_of_equals(set), fraction, seed);
}

std::pair<torch::Tensor, torch::Tensor> hold_out(const torch::Tensor& labels, double fraction,
                                                 uint64_t seed) {
  return hold_out(labels, each_alone(labels.numel()), fraction, seed);
}

std::pair<torch::Tensor, torch::Tensor> hold_out(const torch::Tensor& labels,
                                                 const std::vector<size_t>& first, double fraction,
                                                 uint64_t seed) {
  if (!(fraction >= 0 && fraction < 1))
    core::usage_error(kImageSetComponent,
                      fmt::format("held-out fraction is {}; expected at least 0 and below 1", fraction));
  std::vector<int64_t> heads, size(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] == i) heads.push_back(static_cast<int64_t>(i));
    ++size[first[i]];
  }
  const auto classes =
      shuffled_groups(labels.index_select(0, torch::tensor(heads, torch::kInt64)), seed, kHoldOutDraw);
  const auto head = [&](int64_t row) { return static_cast<size_t>(heads[static_cast<size_t>(row)]); };
  std::vector<int64_t> images;
  for (const auto& [label, rows] : classes) {
    images.push_back(0);
    for (const int64_t r : rows) images.back() += size[head(r)];
  }
  const auto total = static_cast<int64_t>(std::llround(fraction * static_cast<double>(first.size())));
  const auto counts = total > 0 ? proportional(images, total) : std::vector<int64_t>(images.size(), 0);
  std::vector<bool> held(first.size());
  int64_t open = 0;  // what a class could not give in whole groups, others may
  const auto take = [&](const std::vector<int64_t>& rows) {
    for (const int64_t r : rows) {
      if (held[head(r)] || size[head(r)] > open) continue;
      open -= size[head(r)];
      held[head(r)] = true;
    }
  };
  size_t c = 0;
  for (const auto& [label, rows] : classes) {
    open += counts[c++];
    take(rows);
  }
  for (const auto& [label, rows] : classes) take(rows);
  // Where every picture has more copies than are wanted, the one with fewest is better than none.
  if (open == total && total > 0 && heads.size() > 1) {
    const auto fewest = *std::min_element(heads.begin(), heads.end(), [&](int64_t a, int64_t b) {
      return size[static_cast<size_t>(a)] < size[static_cast<size_t>(b)];
    });
    held[static_cast<size_t>(fewest)] = true;
  }
  std::vector<int64_t> rest, out;
  for (size_t i = 0; i < first.size(); ++i) (held[first[i]] ? out : rest).push_back(static_cast<int64_t>(i));
  return {torch::tensor(rest, torch::kInt64), torch::tensor(out, torch::kInt64)};
}

torch::Tensor to_unit_range(const torch::Tensor& pixels) {
  return pixels.to(torch::kFloat32).mul(2.0 / 255.0).sub_(1.0);
}

}  // namespace ebclr::data
