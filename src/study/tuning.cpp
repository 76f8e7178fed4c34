#include "study/tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "study/findings.h"

namespace ebclr::study {
namespace {

std::string text_of(const Settings& settings) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : settings) parts.push_back(key + " " + value);
  return core::join(parts, ", ");
}

// Trials are rows of a study of their own; this is the row that one belongs to.
std::string row_of(const std::string& id) {
  return id.substr(0, id.rfind(':'));
}

}  // namespace

std::optional<Plan> tuning_plan(const Study& study, const std::string& scale, const Scales& scales,
                                const std::filesystem::path& out, const std::filesystem::path& data_root) {
  if (study.tuned_by.empty()) return std::nullopt;
  // The trials of another study are the same runs, so its name and rows are taken too.
  const Study owner = study.tuned_by == study.name ? study : load_study(study.tuned_by);
  if (!owner.tuning) return std::nullopt;
  const auto& tuning = *owner.tuning;
  if (!tuning.scales.empty() &&
      std::find(tuning.scales.begin(), tuning.scales.end(), scale) == tuning.scales.end())
    return std::nullopt;
  Study trials;
  trials.name = owner.name;
  trials.title = "trials of " + owner.title;
  trials.judges = {tuning.judge};
  trials.row_axis = "trial";
  trials.column_axis = owner.column_axis;
  trials.fixed = owner.fixed;
  // In place of the test images, which no trial may see; only the end of a trial counts.
  trials.fixed.emplace_back("data.validation", std::to_string(tuning.held_out));
  trials.fixed.emplace_back("checkpoint.keep_every", "0");
  for (const auto& column : owner.columns)
    if (column.id == tuning.column) trials.columns = {column};
  for (const auto& row : owner.rows) {
    const auto list = tuning.trials.find(row.id);
    if (list == tuning.trials.end()) continue;
    for (size_t i = 0; i < list->second.size(); ++i) {
      Value trial = row;
      trial.id = fmt::format("{}:{}", row.id, i);
      trial.label = fmt::format("{}, {}", row.label, text_of(list->second[i]));
      trial.set.insert(trial.set.end(), list->second[i].begin(), list->second[i].end());
      trials.rows.push_back(std::move(trial));
    }
  }
  return make_plan(trials, scale, scales, 1, {}, out, data_root, tuning.seed);
}

Tuned choose(const Plan& plan, const std::vector<std::string>& failures) {
  Tuned out;
  const Study& s = plan.study;
  std::map<std::string, size_t> best;
  for (const auto& cell : plan.cells) {
    const size_t i = cell.runs.front();
    const auto& spec = plan.runs[i];
    const auto found = read_findings(spec);
    const auto row =
        std::find_if(s.rows.begin(), s.rows.end(), [&](const Value& v) { return v.id == cell.id.row; });
    Trial trial{.row = row_of(cell.id.row), .label = row->label};
    const auto curve = found.curves.find(curve_name(s.judges.front(), cell.on));
    if (complete(spec, found) && curve != found.curves.end())
      trial.accuracy = 100 * curve->second.back().accuracy;
    else
      trial.problem = problem_of(spec, found, failures[i]);
    if (!trial.accuracy && failures[i].empty() && out.unfinished.empty()) out.unfinished = trial.problem;
    const size_t at = out.trials.size();
    out.trials.push_back(trial);
    if (!trial.accuracy) continue;
    const auto [it, fresh] = best.try_emplace(trial.row, at);
    if (!fresh && *trial.accuracy > *out.trials[it->second].accuracy) it->second = at;
  }
  if (!out.unfinished.empty()) return out;
  for (const auto& [row, at] : best) {
    out.trials[at].chosen = true;
    // Cells, trials and rows stand in one order.
    out.chosen[row] = s.rows[at].set;
  }
  return out;
}

Study with_settings(Study study, const Tuned& tuned) {
  for (auto& row : study.rows)
    if (const auto it = tuned.chosen.find(row.id); it != tuned.chosen.end())
      row.set.insert(row.set.end(), it->second.begin(), it->second.end());
  return study;
}

}  // namespace ebclr::study
