#pragma once
// How far Langevin samples of a run's density q(v) are from real images: FID with an Inception network that
// the user brings, else a Frechet distance on features of a classifier of the data set itself, which is never
// called FID.

#include <torch/types.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/judge.h"
#include "fid/classifier.h"
#include "run/run.h"

namespace ebclr::fid {

struct FrechetOptions {
  int64_t samples = 2000;            ///< images drawn from the model; the paper's scale is 10,000 or more
  int64_t steps = 100;               ///< Langevin steps of each; 0 measures the starts
  std::string init = "data";         ///< where chains start: data, uniform or buffer
  std::string data = {};             ///< set to compare with; empty: the run's
  std::string against = "views";     ///< real "views" (p(v), augmented as in the run) or "images" as they are
  int64_t reference_images = 10000;  ///< real ones at most
  int64_t marginal_views = 128;      ///< views that define the marginal energy
  int64_t limit = 0;                 ///< images of each split of the compared set, class-balanced; 0: all
  std::filesystem::path inception = {};  ///< TorchScript file; empty: a classifier of the set
  std::string inception_range = "auto";  ///< pixels that it reads: auto, "0,1", "-1,1" or "0,255"
  int64_t inception_dimensions = 2048;   ///< features that it must give
  ClassifierOptions classifier = {};     ///< where there is no Inception file
  uint64_t seed = 0;                     ///< of starts, noise, views and choices
  std::string checkpoint = "last";       ///< or an epoch
  std::filesystem::path data_root = {};  ///< empty: the run's
  engine::Placement placement = {};
};

struct FrechetResult {
  double distance = 0;  ///< of the samples
  double deviation =
      std::numeric_limits<double>::quiet_NaN();  ///< of it, by the choice of samples; NaN: too few
  double start = 0;                              ///< of the chains before the first step
  double floor = 0;    ///< of other real images, as many as samples: what a perfect model would get
  double ceiling = 0;  ///< of uniform noise
  int64_t samples = 0, references = 0, dimensions = 0;
  int64_t reference_sources = 0, floor_sources = 0;  ///< different images behind the real views of each side
  bool inception = false;                            ///< only then it is an FID
  std::string
      label;  ///< "FID (Inception, 2048-d)" or "Frechet distance on fmnist classifier features (128-d)"
  std::string measured_by;                                                ///< one sentence on what measured
  std::string data;                                                       ///< name of the compared set
  std::string against;                                                    ///< "views" or "images"
  int64_t epoch = 0;                                                      ///< of the checkpoint
  double classifier_accuracy = std::numeric_limits<double>::quiet_NaN();  ///< NaN for Inception
  bool classifier_cached = false;
  double energy_start = 0, energy_end = 0;  ///< means over the samples
  double out_of_range = 0;         ///< part of the samples' pixels outside [-1, 1], which are clamped
  torch::Tensor grid;              ///< the first 64 samples [64, C, H, W]
  std::vector<std::string> notes;  ///< what a reader must know, e.g. too few samples
};

/// Draws samples of the run and measures them. What `progress` throws ends the work.
FrechetResult frechet_of_run(const run::Run& run, const FrechetOptions& options,
                             const eval::Progress& progress = {});

/// Images in [-1, 1] as 8-bit pixels would hold them: clamped and rounded to multiples of 1/255.
torch::Tensor quantise(const torch::Tensor& images);

}  // namespace ebclr::fid
