#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "study/plan.h"
#include "study/workers.h"
#include "watch/watcher.h"

namespace ebclr::cli {

/// A plan as its live page shows it.
class PlanBoard {
 public:
  explicit PlanBoard(const study::Plan& plan);
  /// Where everything stands now; seconds_left negative: not known.
  const watch::StudyBoard& update(const std::vector<study::RunStatus>& status, double seconds_left);

 private:
  std::string score(const study::PlannedCell& cell, const std::vector<study::RunStatus>& status) const;

  const study::Plan& plan_;
  watch::StudyBoard board_;
  std::vector<std::pair<int, std::string>> scored_;  // by cell: runs done when it was last read, and the text
};

}  // namespace ebclr::cli
