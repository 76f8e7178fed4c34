#pragma once
// What the runs of a plan come to: means and intervals over seeds, relative efficiency, failures.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/findings.h"
#include "study/plan.h"
#include "study/spread.h"
#include "study/statistics.h"

namespace ebclr::study {

/// A mean over seeds and where the true one may lie, at 95 %.
struct Estimate {
  Values values = {};              ///< one for each seed that came out
  std::vector<size_t> seeds = {};  ///< which seeds those are
  int64_t total = 0;               ///< test images behind an accuracy
  double mean = 0, low = 0, high = 0;
  /// The interval is over seeds, by the spread of the cells of its column together: also where this cell has
  /// one value left. Else nothing has two seeds, and it is Wilson's over the test images of the one; that
  /// decides nothing.
  bool over_seeds = false;
  double variance = 0;  ///< of the mean, for differences
  double degrees = 0;   ///< of freedom behind it; 0: one seed
};

/// Gives estimates their means and intervals. They share a spread: those of one column and judge. `set` is
/// what all columns on their data set know.
void settle(const std::vector<Estimate*>& column, size_t seeds, const Pool& set = {});

/// The reference's cost to reach this cell's final accuracy, as a part of what this cell spent.
struct CellEfficiency {
  std::vector<eval::Efficiency> by_seed = {};  ///< of the seeds that both have
  std::string void_because = {};               ///< why it says nothing; empty: it does
  /// Means over seeds of both ends; empty where it is void.
  std::optional<eval::Bracket> epochs = {}, seconds = {}, forward_units = {};
};

/// One cell of a study's table.
struct CellResult {
  CellId id = {};
  std::string on = {};
  std::vector<std::string> problems = {};  ///< one for each run that failed, is missing or is unfinished
  size_t seeds = 0;                        ///< that were planned
  int64_t rollbacks = 0;                   ///< of all its runs: how often the guard stepped in
  int64_t epochs = 0;
  double forward_units = 0;                        ///< mean of the trainings
  double seconds = 0;                              ///< that it takes at the pace of the quickest of them
  std::map<std::string, Estimate> score = {};      ///< by judge; accuracies in percent, distances as they are
  std::map<std::string, Estimate> untrained = {};  ///< accuracies in percent
  std::map<std::string, CellEfficiency> efficiency = {};
  std::map<std::string, std::string> measured_as = {};  ///< by judge: on what

  /// Stands in measured_as where seeds differ in that.
  static constexpr const char* kMixed = "different things by different seeds";

  /// Seeds of which a judge has said nothing; what another judge still owes is no loss of this one.
  size_t lost(const std::string& judge) const;
  /// "1 seed lost, rolled back 2 times"; empty when all went well under this judge.
  std::string mark(const std::string& judge) const;
};

/// All of it.
struct Results {
  Plan plan;
  std::vector<Findings> findings = {};     ///< of each run
  std::vector<std::string> failures = {};  ///< of each run; empty: none
  std::map<CellId, CellResult> cells = {};

  /// What a judge says of a cell; null: nothing yet.
  const Estimate* score(const CellId& id, const std::string& judge) const;
};

/// Collects. `failures` says for each run why it failed (empty: it did not).
Results collect(const Plan& plan, const std::vector<std::string>& failures);

/// Difference a - b of two cells: its value, standard error and degrees of freedom.
struct Difference {
  double value = 0, error = 0;
  double degrees = 0;  ///< 0: one seed, nothing can be decided

  /// Half-width of the 95 % interval of this difference alone; with one seed, over its test images.
  double half() const { return (degrees > 0 ? student_t(degrees) : 1.960) * error; }
};
Difference difference(const Estimate& a, const Estimate& b);
/// The same for two rows of one column, which share their seeds: seed by seed, where both have all of them.
Difference paired_difference(const Results& results, const std::string& judge, const std::string& column,
                             const std::string& a, const std::string& b);
/// Seconds of a forward-unit when nothing else runs: seeds do the same work, so the quickest of them tells.
/// Infinity where no curve says what it spent.
double quickest_pace(const std::vector<const std::vector<eval::CurvePoint>*>& curves);

/// Two estimates that share their seeds, whatever they are of. Pairs of one column share one side and the
/// spread of their differences; where that says too little, all pairs on a data set do.
struct EstimatePair {
  const Estimate *a = nullptr, *b = nullptr;
  std::string set = {}, column = {};
};
/// Their differences, seed by seed. Pairs that lost a seed are not paired.
std::vector<Difference> paired_differences(size_t seeds, const std::vector<EstimatePair>& pairs);

}  // namespace ebclr::study
