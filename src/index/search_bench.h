#pragma once
// How fast and how complete search is, for `ebclr bench search`.

#include <functional>

#include "index/search.h"

namespace ebclr::index {

/// Writes an index of made-up features with a graph: directions of 24 dimensions in 1,000 clusters, mapped
/// into `dim` dimensions with noise, since features of images fill few of their dimensions.
void make_bench_index(const std::filesystem::path& path, int64_t count, int64_t dim, uint64_t seed,
                      const std::function<void(double)>& progress);

struct SearchBench {
  int64_t count = 0, dim = 0, queries = 0, effort = 0;
  double open_ms = 0;      ///< to open the file
  double graph_ms = 0;     ///< median of one query, one at a time on one thread
  double graph_ms_99 = 0;  ///< 99 of 100 queries are faster
  double exact_ms = 0;     ///< one query by the matrix product
  double recall = 0;       ///< of the true ten nearest, the share that the graph finds
};

/// Queries are rows of the index with a little noise, so that they are in nobody's place.
SearchBench bench_search(const std::filesystem::path& path, int64_t queries, int64_t effort);

}  // namespace ebclr::index
