#pragma once
// Which images of an index do not belong: by the model's energy and by distances in its features.

#include <string>

#include "index/index_file.h"

namespace ebclr::index {

/// "energy", "neighbours" (distance to the k-th nearest other image), "mahalanobis" (distance from the mean
/// of all), or "combined" (standardised energy and Mahalanobis distance added up).
struct OutlierOptions {
  std::string by = "mahalanobis";
  int64_t k = 10;
};

/// Scores double [N], larger is stranger; throws Error for another name, or energy without energies.
torch::Tensor outlier_scores(const Index& index, const OutlierOptions& options);

/// The same from features float [N, D] and energies [N] (undefined: none); `where` stands for the index in
/// errors.
torch::Tensor outlier_scores(const torch::Tensor& features, const torch::Tensor& energies,
                             const OutlierOptions& options, const std::string& where);

/// Rows from the strangest on, int64 [N].
torch::Tensor strangest(const torch::Tensor& scores);

}  // namespace ebclr::index
