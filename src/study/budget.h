#pragma once
// Accuracies when all spend the same.

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "study/results.h"

namespace ebclr::study {

/// Accuracies of a column when every row may spend the same: as much as the cheapest of them spent in all. A
/// seed that was rolled back spent more; what the dearest of its seeds spent lets all of them come to their
/// end.
struct Budget {
  double spent = 0;  ///< the budget
  struct Entry {
    Estimate score = {};  ///< at the last checkpoint within the budget
    double used = 0;      ///< what the seed that spent least spent there, as a part of the budget
  };
  std::map<std::string, Entry> rows = {};  ///< those with a trained checkpoint within it
};
Budget equal_budget(const Results& results, const std::string& column, const std::string& judge,
                    Currency currency);

/// Two rows of a column, both with what the cheaper of them spent; nothing where the other has no checkpoint
/// within that.
std::optional<std::pair<Budget::Entry, Budget::Entry>> at_equal_cost(
    const Results& results, const std::string& column, const std::string& a, const std::string& b,
    const std::string& judge, Currency currency);

}  // namespace ebclr::study
