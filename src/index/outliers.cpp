#include "index/outliers.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include "core/error.h"
#include "core/text.h"
#include "density/density.h"
#include "eval/outliers.h"

namespace ebclr::index {

namespace {

// Distances of all images from their neighbours, some at once: for many images they take minutes.
torch::Tensor neighbour_distances(const eval::FeatureDistances& distances, const torch::Tensor& features,
                                  const std::function<bool()>& stop) {
  std::vector<torch::Tensor> parts;
  for (const auto& some : features.split(2048)) {
    if (stop && stop()) throw core::Error(core::ExitCode::kInterrupted, "outliers", "interrupted");
    parts.push_back(distances.neighbour(some, /*known=*/true));
  }
  return torch::cat(parts);
}

// Says what an index without energies lacks, and how it gets them.
[[noreturn]] void refuse_energy(const Index& index) {
  const auto& made = index.info();
  const auto word = [](const std::string& name) { return core::one_line(core::shell_word(name)); };
  if (!density::learns_density(made.method, 1))
    core::usage_error("outliers", fmt::format("{}: holds no energies, since {} learns no density; use --by "
                                              "combined",
                                              index.file().string(), made.method));
  core::usage_error(
      "outliers",
      fmt::format("{}: holds no energies; use --by combined, or renew it, which adds them or says why not: "
                  "ebclr index {} --data {} --out {}",
                  index.file().string(), word(made.run), word(made.folder), word(index.file().string())));
}

}  // namespace

torch::Tensor outlier_scores(const Index& index, const OutlierOptions& o) {
  if (o.by == "energy" && !index.info().has_energies) refuse_energy(index);
  Looks looks{.features = index.features(), .lengths = torch::empty({index.size()}, torch::kFloat64)};
  auto lengths = looks.lengths.accessor<double, 1>();
  for (int64_t i = 0; i < index.size(); ++i) lengths[i] = index.record(i).norm;
  if (index.info().has_energies) looks.energies = index.energies();
  return outlier_scores(looks, o, index.file().string());
}

std::string choose_score(int64_t images, int64_t features, bool energies) {
  if (images >= 3 * features) return "combined";
  return energies ? "energy" : "neighbours";
}

torch::Tensor outlier_scores(const Looks& looks, const OutlierOptions& options, const std::string& where) {
  const auto& [features, lengths, energies] = looks;
  auto o = options;
  if (o.by == "auto") o.by = choose_score(features.size(0), features.size(1), energies.defined());
  const bool energy = o.by == "energy";
  if (!energy && o.by != "neighbours" && o.by != "mahalanobis" && o.by != "combined")
    core::usage_error("outliers",
                      fmt::format("score '{}'; choose energy, neighbours, mahalanobis or combined", o.by));
  if (energy && !energies.defined())
    core::usage_error("outliers", fmt::format("{}: holds no energies; use --by combined", where));
  const int64_t n = features.size(0);
  if (n < 3) core::usage_error("outliers", fmt::format("{}: holds {} images; three are the least", where, n));
  if (energy) return energies.to(torch::kFloat64);
  const eval::FeatureDistances distances(features, std::min(o.k, n - 1));
  if (o.by == "neighbours") return neighbour_distances(distances, features, o.stop);
  const auto m = distances.mahalanobis(features);
  if (o.by == "mahalanobis") return m;
  std::vector<eval::ScorePair> pairs{{m, m}, {lengths, lengths}};
  if (energies.defined()) pairs.push_back({energies, energies});
  return eval::unusualness(pairs);
}

torch::Tensor strangest(const torch::Tensor& scores) {
  return scores.argsort(0, /*descending=*/true);
}

}  // namespace ebclr::index
