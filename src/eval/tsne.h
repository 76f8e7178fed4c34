#pragma once
// Two-dimensional maps of features: principal components and exact t-SNE.

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace ebclr::eval {

/// The first `components` principal components of x float [N, D]: double [N, components], signs fixed so that
/// the largest loading of each is positive.
torch::Tensor pca(const torch::Tensor& x, int64_t components);

/// Settings of van der Maaten and Hinton, with today's usual start (PCA) and step size.
struct TsneOptions {
  double perplexity = 30;
  int iterations = 750;
  int exaggerated = 250;  ///< first iterations, with attraction exaggerated
  double exaggeration = 12;
  double learning_rate = 0;                ///< 0: max(N / exaggeration / 4, 50)
  int64_t pca_dimensions = 50;             ///< features are reduced to these first; 0: not at all
  int64_t max_points = 5000;               ///< refuses more: the work and memory of exact t-SNE grow with N^2
  std::function<void(int)> progress = {};  ///< called with each finished iteration
};

/// Exact t-SNE of x float [N, D]: float [N, 2]. Deterministic, whatever the thread count.
torch::Tensor tsne(const torch::Tensor& x, const TsneOptions& options = {});

/// Joint neighbour probabilities float [N, N] of squared distances double [N, N]: symmetric, sum 1, each
/// row's conditional distribution at the wanted perplexity.
torch::Tensor tsne_affinities(const torch::Tensor& squared_distances, double perplexity);

}  // namespace ebclr::eval
