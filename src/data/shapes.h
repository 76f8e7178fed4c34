#pragma once
// A procedural set: coloured shapes on textured ground, ten classes. Class and pixel values are nearly
// independent (position, size, turn, colours, texture and light all vary), so that neighbours in pixel space
// say little and a representation has something to learn.

#include "data/image_set.h"

namespace ebclr::data {

struct ShapesOptions {
  int64_t size = 32;  ///< side in pixels
  bool gray = false;
  int64_t count = 10000;
  uint64_t seed = 0;
  int threads = 0;  ///< 0: as many as there are cores; the images do not depend on it
};

/// Images of one split, "train" or "test". Image i depends on (seed, split, i) alone; every ten in a row hold
/// each class once.
ImageSet make_shapes(const ShapesOptions& options, const std::string& split);

}  // namespace ebclr::data
