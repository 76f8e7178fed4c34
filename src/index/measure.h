#pragma once
// How well copies and strangers are found, on images whose truth is known; for `ebclr bench`.

#include <filesystem>
#include <string>
#include <vector>

#include "density/density.h"
#include "index/build.h"
#include "index/duplicates.h"

namespace ebclr::index {

/// Pairs that a way of looking calls copies, against those that are.
struct PairScore {
  std::string name = {};
  int64_t right = 0, wrong = 0, missed = 0;
  std::vector<double> recall_by_change =
      {};  ///< against the original, in the order of DuplicateMeasure::changes

  double precision() const { return right + wrong > 0 ? double(right) / double(right + wrong) : 1; }
  double recall() const { return right + missed > 0 ? double(right) / double(right + missed) : 1; }
};

struct DuplicateMeasure {
  int64_t originals = 0, images = 0;
  std::vector<std::string> changes = {};  ///< what was done to each original
  std::vector<PairScore> scores = {};     ///< ours, then a perceptual hash at three distances
};

/// Writes changed copies of up to `limit` images of a folder to `scratch` (halved, saved at quality 30,
/// cropped by 8 % of each side's length, all of it), indexes all, and compares the pairs that are found with
/// those that were made.
DuplicateMeasure measure_duplicates(const Looker& looker, const std::filesystem::path& folder,
                                    const std::filesystem::path& scratch, int64_t limit,
                                    const DuplicateOptions& options);

/// One score on one mixture.
struct StrangerMeasure {
  std::string features = {}, by = {};  ///< "encoder" or "pixels"; "energy", ...
  double auroc = 0, precision = 0;     ///< precision among the k strangest, k: how many strangers there are
};

/// Mixes `strangers` into `own` images (both fit for the encoder) and ranks all.
std::vector<StrangerMeasure> measure_strangers(const density::Density& density, const data::ImageSet& own,
                                               const data::ImageSet& strangers);

}  // namespace ebclr::index
