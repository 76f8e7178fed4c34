#pragma once
// The page of a set of runs.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "report/examine.h"

namespace ebclr::report {

struct RunReportOptions {
  std::string title = {};  ///< empty: from the runs
  bool evaluate = true;    ///< compute the confusion matrix and the map
  ExamineOptions examine = {};
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< version, machine, command, date
};

/// The page as HTML; throws Error when a folder is no run, and for nothing else that a run may lack.
std::string run_report(const std::vector<std::filesystem::path>& folders, const RunReportOptions& options);

/// Processor, cores and memory in one line.
std::string describe_machine();

}  // namespace ebclr::report
