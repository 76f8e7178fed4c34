#include "index/measure.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <bit>
#include <map>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"
#include "data/walk.h"
#include "eval/features.h"
#include "eval/metrics.h"
#include "image/decode.h"
#include "image/encode.h"
#include "image/read_file.h"
#include "image/resize.h"
#include "index/outliers.h"

namespace ebclr::index {
namespace fs = std::filesystem;
namespace {

const std::vector<std::string> kChanges = {"half the size", "quality 30", "cropped by 8 %", "all three"};

image::Pixels changed(const image::Pixels& picture, size_t change, core::Rng& rng) {
  image::Region part{0, 0, picture.width, picture.height};
  if (change >= 2) {
    part.width = std::max(1, static_cast<int>(0.92 * picture.width));
    part.height = std::max(1, static_cast<int>(0.92 * picture.height));
    part.left = static_cast<int>(rng.below(static_cast<uint64_t>(picture.width - part.width + 1)));
    part.top = static_cast<int>(rng.below(static_cast<uint64_t>(picture.height - part.height + 1)));
  }
  const int divide = change == 0 || change == 3 ? 2 : 1;
  return image::resize(picture, part, std::max(1, part.width / divide), std::max(1, part.height / divide));
}

void write_picture(const fs::path& path, const std::vector<std::byte>& bytes) {
  core::write_atomically(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "bench");
}

using Pair = std::pair<int64_t, int64_t>;

PairScore compare(const std::string& name, const std::set<Pair>& found, const std::set<Pair>& true_pairs,
                  const std::vector<std::vector<Pair>>& by_change) {
  PairScore s{.name = name};
  for (const auto& p : found) (true_pairs.count(p) ? s.right : s.wrong)++;
  s.missed = static_cast<int64_t>(true_pairs.size()) - s.right;
  for (const auto& pairs : by_change) {
    int64_t hit = 0;
    for (const auto& p : pairs) hit += static_cast<int64_t>(found.count(p));
    s.recall_by_change.push_back(
        pairs.empty() ? 0 : static_cast<double>(hit) / static_cast<double>(pairs.size()));
  }
  return s;
}

Pair ordered(int64_t a, int64_t b) {
  return {std::min(a, b), std::max(a, b)};
}

}  // namespace

DuplicateMeasure measure_duplicates(const Looker& looker, const fs::path& folder, const fs::path& scratch,
                                    int64_t limit, const DuplicateOptions& options) {
  DuplicateMeasure m{.changes = kChanges};
  core::Rng rng(1, core::Stream::kEval, {33});
  fs::create_directories(scratch);
  for (const auto& file : data::find_pictures(folder).files) {
    if (m.originals == limit) break;
    image::Pixels picture;
    try {
      picture = image::decode(image::read_regular(folder / file.path), file.path);
    } catch (const core::Error&) {
      continue;  // not one of those that are measured
    }
    if (std::min(picture.width, picture.height) < 32) continue;
    const auto stem = fmt::format("{:05}", m.originals++);
    write_picture(scratch / (stem + "-o.png"), image::encode_png(picture));
    for (size_t c = 0; c < kChanges.size(); ++c)
      write_picture(scratch / fmt::format("{}-{}.jpg", stem, c),
                    image::encode_jpeg(changed(picture, c, rng), c == 0 || c == 2 ? 90 : 30));
  }
  if (m.originals < 2)
    core::usage_error("bench", fmt::format("{}: two readable images are the least", folder.string()));
  const auto file = scratch / "copies.idx";
  build_index(looker, scratch, file, {.fresh = true});
  const auto index = Index::open(file);
  m.images = index.size();

  // Truth by name: 00012-o.png, 00012-0.jpg, ...
  std::map<std::string, std::vector<int64_t>> families;
  std::vector<std::vector<Pair>> by_change(kChanges.size());
  for (int64_t i = 0; i < index.size(); ++i) families[std::string(index.path(i).substr(0, 5))].push_back(i);
  std::set<Pair> true_pairs;
  for (const auto& [stem, rows] : families) {
    for (size_t a = 0; a < rows.size(); ++a)
      for (size_t b = a + 1; b < rows.size(); ++b) true_pairs.insert(ordered(rows[a], rows[b]));
    const auto original = index.find(stem + "-o.png");
    for (size_t c = 0; c < kChanges.size(); ++c)
      if (const auto row = index.find(fmt::format("{}-{}.jpg", stem, c)); row >= 0 && original >= 0)
        by_change[c].push_back(ordered(original, row));
  }
  std::set<Pair> ours;
  for (const auto& g : find_duplicates(index, options))
    for (size_t a = 0; a < g.rows.size(); ++a)
      for (size_t b = a + 1; b < g.rows.size(); ++b) ours.insert(ordered(g.rows[a], g.rows[b]));
  m.scores.push_back(compare("ebclr duplicates", ours, true_pairs, by_change));
  std::vector<uint64_t> hashes;
  for (int64_t i = 0; i < index.size(); ++i) hashes.push_back(perceptual_hash(index.small(i)));
  for (const int distance : {6, 10, 14}) {
    std::set<Pair> found;
    for (size_t a = 0; a < hashes.size(); ++a)
      for (size_t b = a + 1; b < hashes.size(); ++b)
        if (std::popcount(hashes[a] ^ hashes[b]) <= distance)
          found.insert({static_cast<int64_t>(a), static_cast<int64_t>(b)});
    m.scores.push_back(
        compare(fmt::format("pHash, distance up to {}", distance), found, true_pairs, by_change));
  }
  return m;
}

std::vector<StrangerMeasure> measure_strangers(const density::Density& density, const data::ImageSet& own,
                                               const data::ImageSet& strangers) {
  const int64_t n = own.size(), m = strangers.size();
  const auto positive = torch::cat({torch::zeros({n}, torch::kBool), torch::ones({m}, torch::kBool)});
  const auto both = [&](auto&& f) { return torch::cat({f(own), f(strangers)}); };
  const auto features =
      both([&](const data::ImageSet& s) { return eval::features(*density.model.encoder, s); });
  const auto energies = both([&](const data::ImageSet& s) { return density::energies(density, s); });
  std::vector<StrangerMeasure> out;
  const auto judge = [&](const std::string& name, const torch::Tensor& x, const torch::Tensor& e,
                         const std::string& by) {
    const auto scores = outlier_scores({x, x.norm(2, 1).to(torch::kFloat64), e}, {.by = by}, name);
    const auto first = strangest(scores).narrow(0, 0, m);
    out.push_back({name, by, eval::auroc(scores, positive),
                   positive.index_select(0, first).to(torch::kFloat64).mean().item<double>()});
  };
  for (const auto* by : {"energy", "neighbours", "mahalanobis", "combined"})
    judge("encoder", features, energies, by);
  // Pixels by distance of their directions, as features are; only of images of one size.
  if (own.height() != strangers.height() || own.width() != strangers.width()) return out;
  const auto pixels = both([](const data::ImageSet& s) { return eval::pixel_features(s); });
  for (const auto* by : {"neighbours", "mahalanobis"}) judge("pixels", pixels, {}, by);
  return out;
}

}  // namespace ebclr::index
