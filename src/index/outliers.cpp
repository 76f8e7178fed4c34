#include "index/outliers.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "core/error.h"
#include "eval/outliers.h"

namespace ebclr::index {

torch::Tensor outlier_scores(const Index& index, const OutlierOptions& o) {
  return outlier_scores(index.features(), index.info().has_energies ? index.energies() : torch::Tensor(), o,
                        index.file().string());
}

std::string choose_score(int64_t images, int64_t features, bool energies) {
  const bool enough = images >= 3 * features;
  return energies ? (enough ? "combined" : "energy") : (enough ? "mahalanobis" : "neighbours");
}

torch::Tensor outlier_scores(const torch::Tensor& features, const torch::Tensor& energies,
                             const OutlierOptions& options, const std::string& where) {
  auto o = options;
  if (o.by == "auto") o.by = choose_score(features.size(0), features.size(1), energies.defined());
  const bool energy = o.by == "energy" || o.by == "combined";
  if (!energy && o.by != "neighbours" && o.by != "mahalanobis")
    core::usage_error("outliers",
                      fmt::format("score '{}'; choose energy, neighbours, mahalanobis or combined", o.by));
  if (energy && !energies.defined())
    core::usage_error("outliers",
                      fmt::format("{}: holds no energies, since the run's own images were not there when it "
                                  "was made; use --by mahalanobis",
                                  where));
  const int64_t n = features.size(0);
  if (n < 3) core::usage_error("outliers", fmt::format("{}: holds {} images; three are the least", where, n));
  torch::Tensor e;
  if (energy) e = energies.to(torch::kFloat64);
  if (o.by == "energy") return e;
  const eval::FeatureDistances distances(features, std::min(o.k, n - 1));
  if (o.by == "neighbours") return distances.neighbour(features, /*known=*/true);
  const auto m = distances.mahalanobis(features);
  if (o.by == "mahalanobis") return m;
  return eval::standard_scores(e, e) + eval::standard_scores(m, m);
}

torch::Tensor strangest(const torch::Tensor& scores) {
  return scores.argsort(0, /*descending=*/true);
}

}  // namespace ebclr::index
