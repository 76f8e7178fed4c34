#pragma once
// Which images of an index do not belong: by the model's energy and by distances in its features.

#include <functional>
#include <string>

#include "index/index_file.h"

namespace ebclr::index {

/// "energy", "neighbours" (distance to the k-th nearest other image), "mahalanobis" (distance from the mean
/// of all), or "combined" (eval::unusualness of Mahalanobis distance, length of
/// the features and, where there is one, energy); "auto": see choose_score.
struct OutlierOptions {
  std::string by = "auto";
  int64_t k = 10;
  /// Asked now and then: true ends the work with an error (kInterrupted).
  std::function<bool()> stop = {};
};

/// Scores double [N], larger is stranger; throws Error for another name, or energy without energies.
torch::Tensor outlier_scores(const Index& index, const OutlierOptions& options);

/// What is known of N images: features float [N, D] of any length, the lengths [N] that they had before they
/// were scaled to 1, and energies [N] (undefined: none).
struct Looks {
  torch::Tensor features = {}, lengths = {}, energies = {};
};

/// The same from what is known; `where` stands for the index in errors.
torch::Tensor outlier_scores(const Looks& looks, const OutlierOptions& options, const std::string& where);

/// The score that told strangers best (docs/index.md): combined where there are enough images for a
/// covariance (three per feature), else energy, without energies neighbours.
std::string choose_score(int64_t images, int64_t features, bool energies);

/// Rows from the strangest on, int64 [N].
torch::Tensor strangest(const torch::Tensor& scores);

}  // namespace ebclr::index
