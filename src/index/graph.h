#pragma once
// HNSW (Malkov and Yashunin): built by hnswlib, kept as flat arrays, searched where they lie in the file.

#include <functional>

#include "index/index_file.h"

namespace ebclr::index {

struct GraphOptions {
  int64_t links = 16;    ///< per node and layer; twice as many in the lowest
  int64_t effort = 200;  ///< candidates that are looked at for each new node
  int threads = 0;       ///< 0: as many as torch uses
  uint64_t seed = 0;
  std::function<void(double)> progress = {};  ///< hears the share that is done; may throw
};

/// Builds the graph of rows of length 1, float [N, D]; nearness is the inner product.
Graph build_graph(const torch::Tensor& features, const GraphOptions& options);

/// One row that was found and its inner product with the query.
struct Hit {
  int64_t row = 0;
  float similarity = 0;
};

/// About the `k` nearest rows of a query of length 1, nearest first. `effort` candidates are kept: more find
/// more of the true neighbours and take longer.
std::vector<Hit> search_graph(const Index& index, const float* query, int64_t k, int64_t effort);

/// Inner product of two vectors of n floats.
float inner_product(const float* a, const float* b, size_t n);

}  // namespace ebclr::index
