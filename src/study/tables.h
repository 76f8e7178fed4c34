#pragma once
// Results as tables, for the page, the Markdown and the CSV alike.

#include <string>

#include "report/page.h"
#include "study/results.h"

namespace ebclr::study {

/// What a judge measures, as a heading.
std::string judge_label(const std::string& judge);

/// Rows or columns of a study that the plan has.
std::vector<Value> planned(const Plan& plan, const std::vector<Value>& values, bool rows);

/// The paper's own table with ours in it: "41.2 ± 0.8 (77.3)". Cells that lost a seed or were rolled back are
/// marked.
report::Table main_table(const Results& results, const std::string& judge);
/// What each cell cost, what it started from, and relative efficiency in all three currencies.
report::Table cost_table(const Results& results);
/// Accuracies of a judge when all rows of a column spend the same: epochs, forward-units, seconds. No rows
/// where no column has two curves.
report::Table budget_table(const Results& results, const std::string& judge);
/// The trials that the settings were chosen by; no rows where there were none.
report::Table tuning_table(const Results& results);
/// Every run with what trained it.
report::Table provenance_table(const Results& results);
/// One line per run, judge and checkpoint: every number behind the tables.
report::Table raw_table(const Results& results);

}  // namespace ebclr::study
