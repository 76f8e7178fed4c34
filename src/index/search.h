#pragma once
// Nearest images of an index: exact up to kExactLimit images, by the graph above.

#include <functional>
#include <string>
#include <vector>

#include "index/graph.h"

namespace ebclr::index {

/// Indexes above this size get a graph.
inline constexpr int64_t kExactLimit = 200'000;

struct SearchOptions {
  int64_t top = 12;
  bool exact = false;    ///< even where there is a graph
  int64_t effort = 200;  ///< of the graph: candidates kept
};

/// The nearest rows of each query, queries float [Q, D] (scaled to length 1 here), nearest first.
std::vector<std::vector<Hit>> search(const Index& index, const torch::Tensor& queries,
                                     const SearchOptions& options);

/// One query from several: their mean direction, away from that of the others. wanted [A, D], unwanted [B, D]
/// or undefined -> [1, D].
torch::Tensor combine(const torch::Tensor& wanted, const torch::Tensor& unwanted);

/// The k nearest other rows of every row: rows int64 [N, k] and similarities float [N, k].
struct AllNeighbours {
  torch::Tensor rows, similarities;
};
AllNeighbours all_neighbours(const Index& index, int64_t k, const std::function<void(double)>& progress = {});

}  // namespace ebclr::index
