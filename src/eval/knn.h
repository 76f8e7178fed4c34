#pragma once
// Exact weighted nearest neighbours in three named protocols.

#include <optional>
#include <string>
#include <string_view>

#include "eval/metrics.h"

namespace ebclr::eval {

/// How neighbours are found and how much their vote weighs.
struct KnnOptions {
  std::string protocol = "paper";
  int64_t k = 20;
  bool cosine = false;         ///< unit features and their inner product; else the Euclidean distance
  double temperature = 0;      ///< cosine: a vote weighs exp(similarity / temperature)
  double epsilon = 1e-8;       ///< Euclidean: a vote weighs 1 / (distance + epsilon)
  int64_t query_block = 256;   ///< rows of one block of the score matrix; a thread works on one block
  int64_t train_block = 8192;  ///< columns of it; with the defaults a block takes 8 MB
};

/// "paper": K 20, 1/L2 on raw features; "dino": K 20, cosine, T 0.07; "moco": K 200, cosine, T 0.1.
KnnOptions knn_protocol(std::string_view name);

/// What the options do, in words: "K 20, 1/L2 distance".
std::string label(const KnnOptions& options);

/// The K nearest train rows of each query.
struct Neighbours {
  torch::Tensor indices;  ///< int64 [M, K], nearest first; equally near ones by index
  torch::Tensor values;   ///< double [M, K]: distances, or similarities when cosine
};

/// Rows [N, D] at unit length; rows of zeros stay as they are.
torch::Tensor unit_rows(const torch::Tensor& rows);

/// Finds neighbours exactly. Candidates come from blocked matrix products in single precision; they are then
/// measured again directly in double precision, so that neither block sizes nor threads show in the result.
/// Train float [N, D], queries float [M, D]. Memory beyond the input: a prepared copy of
/// the train rows and a block of scores per thread.
Neighbours nearest_neighbours(const torch::Tensor& train, const torch::Tensor& queries,
                              const KnnOptions& options);

/// Class votes double [M, C] of the neighbours of each test row.
torch::Tensor knn_votes(const Neighbours& neighbours, const torch::Tensor& train_labels, int64_t classes,
                        const KnnOptions& options);
/// Predictions int64 [M]; equal votes go to the smaller class.
torch::Tensor knn_predict(const Labelled& train, const torch::Tensor& queries, int64_t classes,
                          const KnnOptions& options);
/// Predicts the test part and scores it.
Score knn_score(const Labelled& train, const Labelled& test, int64_t classes, const KnnOptions& options);

/// The same neighbours by one sort of one full score matrix in double precision: the readable reference.
Neighbours nearest_neighbours_reference(const torch::Tensor& train, const torch::Tensor& queries,
                                        const KnnOptions& options);

/// Result of one timed comparison with FAISS's flat index.
struct KnnBench {
  double ours_seconds = 0;              ///< best of the repeats
  std::optional<double> faiss_seconds;  ///< likewise; absent when FAISS was not found when building
  double same_neighbours = 0;  ///< share of neighbours found by both; without FAISS: by the reference
  double block_bytes = 0;      ///< memory that our search needs beyond the features
};

/// Searches the same features with our code and with FAISS (L2 or inner product as the options say).
KnnBench bench_knn(const torch::Tensor& train, const torch::Tensor& queries, const KnnOptions& options,
                   int repeats = 3);

}  // namespace ebclr::eval
