#pragma once
// Copies among the images of an index: the same bytes, or the same picture resized, recompressed or slightly
// cropped. Nothing is ever deleted here.

#include <functional>
#include <vector>

#include "index/index_file.h"

namespace ebclr::index {

struct DuplicateOptions {
  double similarity = 0.95;  ///< of features: pairs below are not looked at closer
  double agreement = 0.97;   ///< of the small pictures at their best alignment: pairs below are no copies
  int64_t neighbours = 16;   ///< of each image that are looked at
  std::function<void(double)> progress = {};
  /// Asked now and then, from several threads: true ends the work with an error (kInterrupted).
  std::function<bool()> stop = {};
};

/// Images that are copies of each other.
struct DuplicateGroup {
  std::vector<int64_t> rows;  ///< the largest file first: the one to keep
  /// Whether each has the same bytes as one before it, so that nothing is lost without it; the first: as any
  /// of the others.
  std::vector<bool> exact;
  double agreement = 1;  ///< least agreement that holds the group together
};

/// All groups, largest first. Names that lead to one file are no copies of each other, now that it is asked:
/// of these the one without a link in it stands for all.
std::vector<DuplicateGroup> find_duplicates(const Index& index, const DuplicateOptions& options);

/// Correlation in [-1, 1] of two small pictures where one may be a part of the other: the best over sizes
/// from 0.8 to 1 and shifts, on the part that both show.
double agreement(const uint8_t* a, const uint8_t* b);

/// The 64-bit DCT hash of a small picture (pHash), the usual way, for comparison.
uint64_t perceptual_hash(const uint8_t* small);

}  // namespace ebclr::index
