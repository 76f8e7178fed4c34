#pragma once
// Does what was measured support what the paper claims?

#include <string>
#include <vector>

#include "study/results.h"

namespace ebclr::study {

enum class Ruling { kSupported, kNotSupported, kUndecided };

/// A ruling and why.
struct Verdict {
  Claim claim;
  Ruling ruling = Ruling::kUndecided;
  std::string reason;
  size_t comparisons = 0;  ///< that the claim makes
};

/// "supported", "not supported", "undecided at this scale".
std::string name(Ruling ruling);

/// How verdicts are reached, in words for a report.
std::string how_verdicts_are_reached();

/// One verdict for each claim of the study. A claim holds when all of its comparisons do, and fails when one
/// does; each comparison is made at 5 %, corrected for their number (Holm). One seed decides nothing.
std::vector<Verdict> judge_claims(const Results& results);

}  // namespace ebclr::study
