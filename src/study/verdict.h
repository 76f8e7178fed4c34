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
};

/// "supported", "not supported", "undecided at this scale".
std::string name(Ruling ruling);

/// One verdict for each claim of the study.
std::vector<Verdict> judge_claims(const Results& results);

}  // namespace ebclr::study
