#pragma once
// Where each image of an index lies on the map.

#include <functional>
#include <vector>

#include "index/index_file.h"

namespace ebclr::browse {

struct LayoutOptions {
  int64_t landmarks = 1500;  ///< images that t-SNE places; the others go to their nearest landmarks
  std::function<void(double)> progress = {};
};

/// Places float [N, 2] in [0, 1], no two on one cell of a fine grid: similar images near each other.
torch::Tensor layout(const index::Index& index, const LayoutOptions& options = {});

/// Moves points float [N, 2] in [0, 1] to the nearest free cells of a square grid with about `spare` times as
/// many cells as points; float [N, 2].
torch::Tensor spread_over_grid(const torch::Tensor& points, double spare = 1.6);

/// Rows of places float [N, 2] in [0, 1] along a curve that stays in one part of the map before it goes on to
/// the next (a Z-curve): neighbours in this order are neighbours on the map.
std::vector<int64_t> along_map(const torch::Tensor& places);

}  // namespace ebclr::browse
