#pragma once
// The paper's objective on network outputs. Everything here takes raw outputs f(v) [N, D] and normalises
// them itself; tau divides squared distances, so the cosine temperature is tau / 2.

#include <torch/types.h>

namespace ebclr::ebm {

/// How the discriminative term sums over anchors.
enum class Discriminative { kSymmetric, kOneWay };
/// What the marginal q(v) is approximated with: the N other views (approximation 1) or all 2N - 1 (2).
enum class Marginal { kApprox1, kApprox2 };

struct ObjectiveOptions {
  double tau = 0.1;
  double lambda = 0.1;  ///< weight of the generative term
  double gamma = 1.0;   ///< weight of the discriminative term (Appendix E.5 varies it with lambda = 1)
  double output_l2 =
      0.001;  ///< weight of the squared output norms, inside the generative term, summed over the batch
  double view_l2 = 0;  ///< the same for f1 alone, outside the generative term: what lambda = 0 may want
  Discriminative discriminative = Discriminative::kSymmetric;
  Marginal marginal = Marginal::kApprox1;
};

/// Rows scaled to unit length.
torch::Tensor unit_rows(const torch::Tensor& f);

/// -||z_i - z'_j||^2 / tau of unit rows: z [N, D], z' [M, D] -> [N, M].
torch::Tensor pair_logits(const torch::Tensor& z, const torch::Tensor& z_other, double tau);

/// E(v; {v'_m}) = -logsumexp_m(-||z - z'_m||^2 / tau): f [N, D], references [M, D] -> [N].
torch::Tensor energy(const torch::Tensor& f, const torch::Tensor& references, double tau);

/// JEM's energy of class logits: E(v) = -logsumexp_y(logits(v)[y]): [N, K] -> [N].
torch::Tensor class_energy(const torch::Tensor& logits);

/// Approximation 2 for data views: anchor n of view 1 against all 2N - 1 other views -> [N].
torch::Tensor energy_among_views(const torch::Tensor& f1, const torch::Tensor& f2, double tau);

/// -mean log q(v'|v) with the other 2N - 1 views in the denominator; scalar.
torch::Tensor discriminative_loss(const torch::Tensor& f1, const torch::Tensor& f2, double tau,
                                  Discriminative form);

/// The loss to minimise and its parts (scalars; `loss` carries the graph).
struct Objective {
  torch::Tensor loss;
  torch::Tensor discriminative;  ///< before gamma
  torch::Tensor energy_data;     ///< mean
  torch::Tensor energy_samples;  ///< mean
  torch::Tensor output_penalty;  ///< before lambda * output_l2
};

/// gamma * disc + lambda * (mean E(data) - mean E(samples) + output_l2 * (sum f1^2 + N / C sum fn^2))
/// + view_l2 * sum f1^2. f1, f2 [N, D], fn [C, D]: with fewer chains than images the penalty counts each of
/// them as N / C. Gradients flow through f2 everywhere. An undefined fn leaves out the generative term.
Objective ebclr_objective(const torch::Tensor& f1, const torch::Tensor& f2, const torch::Tensor& fn,
                          const ObjectiveOptions& options);

/// References that the sampler's energy sees, detached: f2, or f1 and f2 under approximation 2.
torch::Tensor sampler_references(const torch::Tensor& f1, const torch::Tensor& f2, Marginal marginal);

}  // namespace ebclr::ebm
