#pragma once
// A classifier on frozen features from few labels: probabilities that mean what they say, an accuracy that
// was measured on labels it had not seen, and which images to label next.

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "eval/metrics.h"

namespace ebclr::index {

struct ClassifyOptions {
  int folds = 5;  ///< parts of the labels that are held out in turn; fewer where a class has fewer pictures
  /// For each image the first of its copies (data::first_of_equals), which are held out together; empty:
  /// none.
  std::vector<size_t> first = {};
  uint64_t seed = 0;
  std::function<void(double)> progress = {};
};

struct Classified {
  torch::Tensor probabilities;  ///< float [N, C], calibrated
  torch::Tensor predictions;    ///< int64 [N]
  double temperature = 1;       ///< by which logits were divided
  eval::Score held_out;         ///< of the labelled images, each judged by a classifier that had not seen it
  /// How far stated probability and truth lie apart on held-out labels (expected calibration error), without
  /// and with the temperature; each part is calibrated by the others.
  double error_before = 0, error_after = 0;
  int folds = 0;
};

/// Learns from the images with a label (>= 0) and predicts all. features float [N, D], labels int64 [N].
/// Throws Error when there are fewer than two classes or a class has labels of fewer than two pictures.
Classified classify(const torch::Tensor& features, const torch::Tensor& labels,
                    const std::vector<std::string>& class_names, const ClassifyOptions& options);

/// What the same classifier, trained on `train` alone, makes of the features `test`: logits [N, C].
torch::Tensor classify_split(const eval::Labelled& train, const torch::Tensor& test, int64_t classes,
                             uint64_t seed);

/// Rows of unlabelled images that are worth a label most: uncertain ones that differ from each other.
std::vector<int64_t> suggest(const torch::Tensor& features, const torch::Tensor& labels,
                             const torch::Tensor& probabilities, int64_t count);

/// The temperature that makes logits [N, C] fit labels [N] best.
double fit_temperature(const torch::Tensor& logits, const torch::Tensor& labels);
/// Expected calibration error over ten bins of confidence. probabilities [N, C], labels [N].
double calibration_error(const torch::Tensor& probabilities, const torch::Tensor& labels);

}  // namespace ebclr::index
