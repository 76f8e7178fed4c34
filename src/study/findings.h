#pragma once
// What is known of a run of a plan, from its folder.

#include <compare>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "eval/run_curve.h"
#include "run/provenance.h"
#include "study/plan.h"

namespace ebclr::study {

/// Images of each set of strangers.
inline constexpr int64_t kStrangers = 2000;

/// A distance of samples to data; or a mean AUROC in percent of telling strangers.
struct FrechetFinding {
  double distance = 0, floor = 0, ceiling = 0;
  double deviation = 0;  ///< of the distance by the choice of samples
  int64_t samples = 0, steps = 0;
  std::string label;
};

/// Which of a run's curves: by whom, on which set of images.
struct CurveName {
  std::string judge, set;
  auto operator<=>(const CurveName&) const = default;
};
inline CurveName curve_name(const std::string& judge, const std::string& set) {
  return {judge, set};
}

/// All that is known of a run; what is missing was not judged yet.
struct Findings {
  bool trained = false;
  int64_t epochs = 0, steps = 0, rollbacks = 0;
  double seconds = 0, forward_units = 0, peak_memory = 0;
  std::vector<run::Session> sessions;                         ///< what trained it
  std::map<CurveName, std::vector<eval::CurvePoint>> curves;  ///< the first point is untrained
  std::map<CurveName, std::string> judged_on;                 ///< "4000 train and 10000 test images"
  std::map<std::string, FrechetFinding> distances;            ///< by judge
};

/// Judge and protocol of the eval room behind a study's judge of accuracies: "knn-dino" is {"knn", "dino"}.
std::pair<std::string, std::string> judge_and_protocol(const std::string& judge);

/// How these judges of a run are set.
eval::CurveOptions curve_options(const RunSpec& spec, const std::string& set,
                                 const std::vector<std::string>& judges);

/// The file that holds the distances of a judge, and the words that say how it was made.
std::filesystem::path distance_file(const RunSpec& spec, const std::string& judge);
std::string distance_settings(const Judging& judging, const std::string& judge);

/// Reads what a run folder holds of a spec; nothing is trusted that was judged otherwise.
Findings read_findings(const RunSpec& spec);
/// Is there nothing left to do?
bool complete(const RunSpec& spec, const Findings& findings);
/// Why a run has no result, or not all: its failure (empty: none), what blocks it, that it is not finished,
/// or who has not judged it yet. Empty: nothing is missing.
std::string problem_of(const RunSpec& spec, const Findings& findings, const std::string& failure);

}  // namespace ebclr::study
