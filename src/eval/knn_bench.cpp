#ifdef EBCLR_FAISS
#include <faiss/IndexFlat.h>
#endif
#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "eval/knn.h"

namespace ebclr::eval {

KnnBench bench_knn(const torch::Tensor& train, const torch::Tensor& queries, const KnnOptions& options,
                   int repeats) {
  using Clock = std::chrono::steady_clock;
  auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto x = train.to(torch::kCPU, torch::kFloat32).contiguous();
  const auto y = queries.to(torch::kCPU, torch::kFloat32).contiguous();
  KnnBench bench;
  bench.ours_seconds = 1e300;
  bench.block_bytes = 4.0 * double(x.numel() + torch::get_num_threads() * options.query_block *
                                                   (options.train_block + x.size(1)));
  Neighbours ours;
#ifdef EBCLR_FAISS
  const auto theirs = torch::empty({y.size(0), options.k}, torch::kInt64);
  auto distances = torch::empty({y.size(0), options.k});
  bench.faiss_seconds = 1e300;
#else
  const auto theirs = nearest_neighbours_reference(x, y, options).indices;
#endif
  for (int r = 0; r < repeats; ++r) {
    auto start = Clock::now();
    ours = nearest_neighbours(x, y, options);
    bench.ours_seconds = std::min(bench.ours_seconds, seconds_since(start));

#ifdef EBCLR_FAISS
    // Both pay for preparing the train rows; normalisation is part of a cosine search.
    start = Clock::now();
    auto unit = [&](const torch::Tensor& t) { return options.cosine ? unit_rows(t).contiguous() : t; };
    const auto rows = unit(x), asked = unit(y);
    faiss::IndexFlat index(x.size(1), options.cosine ? faiss::METRIC_INNER_PRODUCT : faiss::METRIC_L2);
    index.add(rows.size(0), rows.data_ptr<float>());
    index.search(asked.size(0), asked.data_ptr<float>(), options.k, distances.data_ptr<float>(),
                 theirs.data_ptr<int64_t>());
    bench.faiss_seconds = std::min(*bench.faiss_seconds, seconds_since(start));
#endif
  }
  const auto a = std::get<0>(ours.indices.sort(1)), b = std::get<0>(theirs.sort(1));
  // Rows are sets: an element of ours counts when it stands in the same row of theirs.
  const auto place = torch::searchsorted(b, a.contiguous()).clamp_max(options.k - 1);
  bench.same_neighbours = b.gather(1, place).eq(a).to(torch::kFloat64).mean().item<double>();
  return bench;
}

}  // namespace ebclr::eval
