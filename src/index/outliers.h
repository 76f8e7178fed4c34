#pragma once
// Which images of an index do not belong: by the model's energy and by distances in its features.

#include <string>

#include "index/index_file.h"

namespace ebclr::index {

/// "energy", "neighbours" (distance to the k-th nearest other image), "mahalanobis" (distance from the mean
/// of all), or "combined" (standardised energy and Mahalanobis distance added up); "auto": see choose_score.
struct OutlierOptions {
  std::string by = "auto";
  int64_t k = 10;
};

/// Scores double [N], larger is stranger; throws Error for another name, or energy without energies.
torch::Tensor outlier_scores(const Index& index, const OutlierOptions& options);

/// The same from features float [N, D] and energies [N] (undefined: none); `where` stands for the index in
/// errors.
torch::Tensor outlier_scores(const torch::Tensor& features, const torch::Tensor& energies,
                             const OutlierOptions& options, const std::string& where);

/// The score that told strangers best (docs/index.md): combined where there are energies and enough images
/// for a covariance (three per feature), else energy; without energies mahalanobis, else neighbours.
std::string choose_score(int64_t images, int64_t features, bool energies);

/// Rows from the strangest on, int64 [N].
torch::Tensor strangest(const torch::Tensor& scores);

}  // namespace ebclr::index
