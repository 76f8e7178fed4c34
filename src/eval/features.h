#pragma once
// From images to features: frozen encoders, raw pixels, and sets that differ from what an encoder was trained
// on.

#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/image_set.h"
#include "dist/group.h"
#include "eval/knn.h"
#include "eval/metrics.h"
#include "nn/encoder.h"

namespace ebclr::run {
struct Config;
}

namespace ebclr::eval {

struct FeatureOptions {
  int64_t batch_size = 256;                           ///< changes speed and memory only
  nn::Head* head = nullptr;                           ///< when set, its projections are returned instead
  std::function<void(double)> progress = {};          ///< called with the share that is done
  std::shared_ptr<dist::Group> ranks = dist::solo();  ///< that share the work; rank 0 gets the result
};

/// Features float [N, D] of every image, before the projection head, in inference mode and without gradients.
/// The encoder is left in the mode in which it was found. Ranks other than 0 get [0, D].
torch::Tensor features(nn::Encoder& encoder, const data::ImageSet& set, const FeatureOptions& options = {});

/// Pixels in [-1, 1] as features, float [N, C * H * W].
torch::Tensor pixel_features(const data::ImageSet& set);

/// A set that an encoder can read, and what was done to it.
struct Adapted {
  data::ImageSet set;
  std::vector<std::string> notes;
};

/// Makes a set readable for an encoder of `channels` channels that was trained on images of {C, H, W} (empty:
/// not known). Grey images are copied to three channels; colour images for a grey encoder are an error unless
/// `grayscale` allows to convert them. Sizes are left alone: the encoder is convolutional and averages at the
/// end.
Adapted adapt(data::ImageSet set, int64_t channels, const std::vector<int64_t>& trained_shape,
              bool grayscale);

/// Settings of the online monitor.
struct KnnMonitorOptions {
  int64_t train = 5000, test = 1000;  ///< class-balanced subsets
  uint64_t seed = 0;
  KnnOptions knn = {};  ///< K is lowered to the size of a small train subset
};

/// A function that returns the kNN accuracy of an encoder as it is when called. It uses no randomness and
/// restores the encoder's mode, so training goes on as if it had not been there. Without test images a tenth
/// of train is held out.
using KnnMonitor = std::function<double(nn::Encoder&)>;
/// Throws Error for images that cannot be watched by; asks for no encoder, so that this is known before a run
/// begins.
KnnMonitor make_knn_monitor(const data::ImageSet& train, const data::ImageSet& test,
                            const KnnMonitorOptions& options = {});
/// The monitor that a configuration asks for: by the labelled images of its probe, read by so many threads,
/// else by the run's own. Empty where it asks for none.
KnnMonitor monitor_of(const run::Config& config, const data::ImageSet& train, const data::ImageSet& test,
                      int threads = 0);
/// The same for a run that goes on: labels or a probe that are gone do not end it. `tell` hears why nothing
/// is watched.
KnnMonitor monitor_to_resume(const run::Config& config, const data::ImageSet& train,
                             const data::ImageSet& test, const std::function<void(const std::string&)>& tell,
                             int threads = 0);

}  // namespace ebclr::eval
