#pragma once
// The tuning stage of a study: every method gets the same small number of trials over its own few keys, with
// a seed apart from the study's, judged on held-out train images. No test image is seen.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/plan.h"

namespace ebclr::study {

/// What the trials came to.
struct Tuned {
  std::vector<Trial> trials = {};
  std::map<std::string, Settings> chosen = {};  ///< by row of the study that is tuned
  std::string unfinished = {};                  ///< why nothing is chosen yet; empty: all is
};

/// The runs of the trials; nothing for a study without tuning, or a scale that is not tuned.
std::optional<Plan> tuning_plan(const Study& study, const std::string& scale, const Scales& scales,
                                const std::filesystem::path& out, const std::filesystem::path& data_root);

/// Reads the trials of that plan and picks the best of each row; one that failed is not picked.
Tuned choose(const Plan& tuning, const std::vector<std::string>& failures);

/// The study with the chosen settings in its rows.
Study with_settings(Study study, const Tuned& tuned);

}  // namespace ebclr::study
