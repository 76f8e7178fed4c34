#pragma once
// What a list of predictions is worth: accuracy with its interval, per class, confusion, AUROC.

#include <torch/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace ebclr::eval {

/// Features of some images and their labels; every judge of this room takes a pair of these.
struct Labelled {
  torch::Tensor features;  ///< float [N, D]
  torch::Tensor labels;    ///< int64 [N], in 0..classes-1
};

/// Throws when a judge could not work with it: shapes, NaN, unlabelled images, labels out of range.
/// `name` says which part it is ("train", "test") in the error.
void check_labelled(const Labelled& part, int64_t classes, std::string_view name);
/// Throws when fewer than two classes occur: no classifier can be judged on them.
void check_classes(const Labelled& train);

/// Both ends of an interval.
struct Interval {
  double low = 0, high = 1;
};

/// Wilson's score interval for a share of `correct` out of `total`, at 95 % unless z says otherwise.
Interval wilson(int64_t correct, int64_t total, double z = 1.959963984540054);

/// Predictions against the truth.
struct Score {
  int64_t correct = 0, total = 0;
  double accuracy = 0;
  Interval interval;              ///< Wilson, 95 %
  std::vector<double> per_class;  ///< accuracy within each class, NaN where a class does not occur
  torch::Tensor confusion;        ///< int64 [C, C], row: truth, column: prediction
};

/// Scores predictions int64 [N] against truth int64 [N].
Score score(const torch::Tensor& truth, const torch::Tensor& predictions, int64_t classes);

/// Area under the ROC curve: the chance that a random positive scores above a random negative (ties count
/// half). Scores float [N], positive bool [N].
double auroc(const torch::Tensor& scores, const torch::Tensor& positive);

/// Mean and standard deviation (n - 1) of a few numbers.
struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread(const std::vector<double>& values);

}  // namespace ebclr::eval
