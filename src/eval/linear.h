#pragma once
// The linear probe: a softmax classifier on frozen features, trained at a whole grid of learning rates at
// once.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/metrics.h"

namespace ebclr::eval {

/// How the learning rate is chosen.
enum class ProbeProtocol {
  kHonest,  ///< on a held-out part of train; the winner is refitted on all of train and test is read once
  kPaper,   ///< the best test accuracy over the grid, as the paper's released code does
};

/// "honest" or "paper".
ProbeProtocol probe_protocol(std::string_view name);
std::string_view name(ProbeProtocol protocol);
/// What every output says about the protocol, e.g. "learning rate chosen on test".
std::string_view label(ProbeProtocol protocol);

/// Settings of the probe; the defaults are the paper's.
struct ProbeOptions {
  ProbeProtocol protocol = ProbeProtocol::kHonest;
  int64_t epochs = 200;
  int64_t batch_size = 512;
  std::vector<double> rates = log_grid(-4, -1, 10);
  double held_out = 0.1;     ///< share of train that judges the grid (honest)
  bool standardise = false;  ///< each feature to mean 0 and deviation 1 over the images it is trained on
  uint64_t seed = 0;         ///< of the split, the order of batches and the first weights
  std::function<void(double)> progress = {};  ///< called with the share of the work that is done, 0 to 1

  /// `count` values from 10^low to 10^high, evenly spaced in the exponent.
  static std::vector<double> log_grid(double low, double high, int count);
};

/// Linear classifiers, one per learning rate.
struct Probe {
  torch::Tensor weight;  ///< float [R, C, D]
  torch::Tensor bias;    ///< float [R, C]
  torch::Tensor mean;    ///< float [D], undefined unless standardised
  torch::Tensor scale;   ///< float [D], multiplies (x - mean)

  /// Predictions int64 [R, N] of features float [N, D].
  torch::Tensor predict(const torch::Tensor& features) const;
  /// The r-th classifier alone.
  Probe only(int64_t r) const;
};

/// Trains one classifier per rate with Adam on the same batches, all in one matrix product per step. The
/// first weights are uniform in +-1/sqrt(D), equal for all rates.
Probe train_probe(const Labelled& train, int64_t classes, const ProbeOptions& options);
/// Order of the images in one epoch of train_probe, int64 [n].
torch::Tensor probe_order(int64_t n, uint64_t seed, int64_t epoch);
/// The weights that training starts from, float [C, D] and [C].
std::pair<torch::Tensor, torch::Tensor> probe_start(int64_t classes, int64_t width, uint64_t seed);

/// A fitted and judged probe.
struct ProbeResult {
  ProbeProtocol protocol = ProbeProtocol::kHonest;
  std::vector<double> rates;
  std::vector<double> grid_accuracy;  ///< per rate; on held-out images (honest) or on test (paper)
  int64_t best = 0;                   ///< index of the chosen rate; the smaller of equals
  Probe probe;                        ///< the one classifier that was judged
  Score test;
};

/// The rate chosen by the honest protocol and the classifier refitted with it: everything before test is
/// read.
ProbeResult fit_probe(const Labelled& train, int64_t classes, const ProbeOptions& options);
/// Runs the protocol from end to end.
ProbeResult linear_probe(const Labelled& train, const Labelled& test, int64_t classes,
                         const ProbeOptions& options);

/// Seeded, class-stratified split of row numbers: {rest, held out}, ascending. Every class with two images or
/// more keeps at least one on each side.
std::pair<torch::Tensor, torch::Tensor> stratified_split(const torch::Tensor& labels, double fraction,
                                                         uint64_t seed);
/// `per_class` seeded row numbers of each class that occurs, ascending; an error when a class has fewer.
torch::Tensor draw_per_class(const torch::Tensor& labels, int64_t per_class, uint64_t seed);

/// Accuracy with few labels: one row per number of labels per class.
struct LabelEfficiency {
  int64_t labels_per_class = 0;
  std::vector<double> accuracies;  ///< one per draw
  Spread accuracy;
};

/// Linear probes on `draws` seeded label draws for each number of labels. A draw of one label per class
/// leaves nothing to hold out: there the grid is judged on its own training images.
std::vector<LabelEfficiency> label_efficiency(const Labelled& train, const Labelled& test, int64_t classes,
                                              const std::vector<int64_t>& labels_per_class, int draws,
                                              const ProbeOptions& options);

}  // namespace ebclr::eval
