#pragma once
// Can a model tell images that do not belong? Several sets of strangers against the run's own test images, by
// the model's energy and by distances in its features.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/image_set.h"
#include "density/density.h"

namespace ebclr::eval {

/// Images that do not come from training, like `own` in shape.
struct Strangers {
  std::string name;  ///< "shapes", "noise", "blurred", "shuffled", "mnist", "fmnist", "cifar10", "cifar100"
  data::ImageSet set;
};

struct StrangerOptions {
  int64_t count = 2000;                  ///< images of each set, the own one included
  std::filesystem::path data_root = {};  ///< empty: the run's
  uint64_t seed = 0;
};

/// Drawn shapes, uniform noise, own images blurred, own images with their sixteen tiles shuffled, and the
/// named sets that are on this disk and do not have the run's own images, resized and coloured as `own`.
std::vector<Strangers> make_strangers(const data::ImageSet& own, const StrangerOptions& options);

/// Scores of the images of one set, the higher the stranger: double [N] each.
struct SetScores {
  std::string name;
  torch::Tensor energy, neighbour, mahalanobis;
  torch::Tensor length;  ///< of the features, which the distances do not see
};

struct StrangerScores {
  SetScores training;  ///< tell how much familiar images scatter
  SetScores own;       ///< familiar images that were not trained on
  std::vector<SetScores> sets;
};

/// `own` are images that were not trained on.
StrangerScores score_strangers(const density::Density& density, const data::ImageSet& own,
                               const std::vector<Strangers>& strangers,
                               const std::function<void(double)>& progress = {});

/// AUROC of strangers against own images; 0.5 is chance.
struct StrangerRow {
  std::string name;  ///< of the set; "mean" in the last row
  double energy = 0, neighbour = 0, mahalanobis = 0;
  double combined = 0;  ///< unusualness of energy, Mahalanobis distance and length of features
};

/// One row per set and their mean.
std::vector<StrangerRow> judge_strangers(const StrangerScores& scores);

}  // namespace ebclr::eval
