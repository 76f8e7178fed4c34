#pragma once
// Results as Markdown, CSV and one self-contained page.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "study/results.h"
#include "study/verdict.h"

namespace ebclr::study {

/// Name and value: command, version, commit, machine, date.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The files that were written.
struct Written {
  std::filesystem::path html, markdown, csv;
  std::vector<std::filesystem::path> curves;  ///< PNG, one for each judge with curves
};

/// Writes report.html, report.md, results.csv and pictures of the curves into `folder`.
Written write_results(const Results& results, const Facts& facts, const std::filesystem::path& folder);

/// The text of report.md.
std::string to_markdown(const Results& results, const Facts& facts);
/// One line per run and judge: every number behind the tables.
std::string to_csv(const Results& results);

/// "41.2 ± 0.8", or "-" where there is nothing.
std::string show(const Estimate& estimate);

}  // namespace ebclr::study
