#pragma once

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "engine/engine.h"
#include "eval/judge.h"
#include "fid/feature_extractor.h"

namespace ebclr::fid {

/// A small ResNet with BatchNorm, trained with labels on a part of the set itself.
struct ClassifierOptions {
  int64_t width = 16;       ///< of the ResNet-18; features have 8 times as many dimensions
  int64_t images = 10000;   ///< class-balanced, at most half of train: the rest stays unseen
  int64_t epochs = 0;       ///< of two views of each image; 0: 5, up to 40 for sets below 2000 images
  int64_t batch_size = 64;  ///< images
  double lr = 2e-3;         ///< Adam, falling to zero by a cosine
  uint64_t seed = 0;
};

/// A trained classifier whose features measure distances.
struct TrainedClassifier {
  std::unique_ptr<FeatureExtractor> extractor;
  double accuracy = 0;             ///< on images that it has not seen
  int64_t judged_on = 0;           ///< how many those are
  bool cached = false;             ///< read from `file` instead of trained
  std::filesystem::path file;      ///< where it is kept; empty when it could not be
  torch::Tensor unseen;            ///< indices into train that it was not trained on, int64 [M], ascending
  std::vector<std::string> notes;  ///< e.g. a damaged file that was replaced
};

/// Reads the classifier of this set and these options from `cache`, or trains it and writes it there. Throws
/// Error for a set without labels or with one class. `progress` may throw to end the training.
TrainedClassifier make_classifier(const data::TrainTest& sets, const ClassifierOptions& options,
                                  const std::filesystem::path& cache, const engine::Placement& placement = {},
                                  const eval::Progress& progress = {});

}  // namespace ebclr::fid
