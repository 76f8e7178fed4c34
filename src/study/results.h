#pragma once
// What the runs of a plan come to: means and intervals over seeds, relative efficiency, failures.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/perform.h"
#include "study/plan.h"

namespace ebclr::study {

/// A mean over seeds and where the true one may lie, at 95 %.
struct Estimate {
  std::vector<double> values;  ///< one for each seed
  double mean = 0, low = 0, high = 0;
  bool over_seeds = false;  ///< else the interval is Wilson's over the test images of the one seed
  double variance = 0;      ///< of the mean, for differences
};

/// The reference's cost to reach this cell's final accuracy, as a part of what this cell spent; means over
/// seeds. Empty where it never got there.
struct CellEfficiency {
  std::optional<double> epochs, seconds, forward_units;
  std::vector<std::optional<double>> epochs_by_seed;
};

/// One cell of a study's table.
struct CellResult {
  CellId id;
  std::string on;
  std::vector<std::string> problems;  ///< one for each run that failed, is missing or is unfinished
  int64_t epochs = 0;
  double seconds = 0, forward_units = 0;      ///< means of the trainings
  std::map<std::string, Estimate> score;      ///< by judge; accuracies in percent, distances as they are
  std::map<std::string, Estimate> untrained;  ///< accuracies in percent
  std::map<std::string, CellEfficiency> efficiency;
};

/// All of it.
struct Results {
  Plan plan;
  std::vector<Findings> findings;     ///< of each run
  std::vector<std::string> failures;  ///< of each run; empty: none
  std::map<CellId, CellResult> cells;
  std::map<std::string, int> degrees;  ///< of freedom behind the intervals over seeds, by judge
  /// Variance of a cell's value once its own mean and its seed's are taken off, for differences; by judge.
  struct Paired {
    double variance = 0;
    int degrees = 0;
  };
  std::map<std::string, Paired> paired;
};

/// Does a smaller value of this judge mean better?
bool smaller_is_better(const std::string& judge);

/// Collects. `failures` says for each run why it failed (empty: it did not).
Results collect(const Plan& plan, const std::vector<std::string>& failures);

/// 97.5 % quantile of Student's t distribution.
double student_t(int degrees);

/// Difference a - b of two cells with the half-width of its 95 % interval.
struct Difference {
  double value = 0, half = 0;
};
Difference difference(const Results& results, const std::string& judge, const Estimate& a, const Estimate& b);
/// The same for two cells of one column, which share their seeds: seed by seed, where both have all of them.
Difference paired_difference(const Results& results, const std::string& judge, const Estimate& a,
                             const Estimate& b);

}  // namespace ebclr::study
