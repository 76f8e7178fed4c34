#include "cli/plan_board.h"

#include <fmt/format.h>

#include "study/perform.h"

namespace ebclr::cli {
namespace {

std::string label_of(const std::vector<study::Value>& values, const std::string& id) {
  for (const auto& v : values)
    if (v.id == id) return v.label;
  return id;
}

const char* word_for(study::RunState s) {
  switch (s) {
    case study::RunState::kWaiting:
      return "waiting";
    case study::RunState::kRunning:
      return "running";
    case study::RunState::kElsewhere:
      return "elsewhere";
    case study::RunState::kDone:
      return "done";
    case study::RunState::kFailed:
      return "failed";
    case study::RunState::kBlocked:
      return "blocked";
    case study::RunState::kStopped:
      return "stopped";
  }
  return "";
}

}  // namespace

PlanBoard::PlanBoard(const study::Plan& plan) : plan_(plan), scored_(plan.cells.size(), {-1, ""}) {
  board_.name = plan.study.name;
  board_.title = plan.study.title;
  board_.scale = plan.scale;
  const auto planned = [&](std::string study::CellId::*axis, const std::string& id) {
    return std::any_of(plan.cells.begin(), plan.cells.end(), [&](const auto& c) { return c.id.*axis == id; });
  };
  for (const auto& r : plan.study.rows)
    if (planned(&study::CellId::row, r.id)) board_.rows.push_back(r.label);
  for (const auto& c : plan.study.columns)
    if (planned(&study::CellId::column, c.id)) board_.columns.push_back(c.label);
}

const watch::StudyBoard& PlanBoard::update(const std::vector<study::RunStatus>& status, double seconds_left) {
  board_.runs.clear();
  board_.cells.clear();
  double done = 0, all = 0;
  for (size_t i = 0; i < status.size(); ++i) {
    const auto& spec = plan_.runs[i];
    const double total = std::max(1.0, spec.forward_units + spec.judging_units);
    const double share = std::min(1.0, status[i].units / total);
    if (status[i].state != study::RunState::kBlocked) done += share * total, all += total;
    board_.runs.push_back({spec.title, word_for(status[i].state),
                           status[i].failure.empty() ? status[i].doing : status[i].failure,
                           spec.folder.string(), share});
  }
  for (size_t k = 0; k < plan_.cells.size(); ++k) {
    const auto& cell = plan_.cells[k];
    watch::StudyBoard::Cell c;
    c.row = label_of(plan_.study.rows, cell.id.row);
    c.column = label_of(plan_.study.columns, cell.id.column);
    c.runs = static_cast<int>(cell.runs.size());
    for (const size_t i : cell.runs) {
      c.done += status[i].state == study::RunState::kDone;
      c.failed += status[i].state == study::RunState::kFailed;
    }
    // Findings are read again only when another run of the cell is done.
    if (scored_[k].first != c.done) scored_[k] = {c.done, score(cell, status)};
    c.score = scored_[k].second;
    board_.cells.push_back(std::move(c));
  }
  board_.share = all > 0 ? done / all : 1;
  board_.seconds_left = seconds_left;
  return board_;
}

// The mean over the seeds that are done, by the study's first judge.
std::string PlanBoard::score(const study::PlannedCell& cell,
                             const std::vector<study::RunStatus>& status) const {
  double sum = 0;
  int n = 0;
  const auto& judge = plan_.study.judges.front();
  for (const size_t i : cell.runs) {
    if (status[i].state != study::RunState::kDone) continue;
    const auto f = study::read_findings(plan_.runs[i]);
    if (study::is_measured_once(judge)) {
      if (const auto d = f.distances.find(judge); d != f.distances.end()) sum += d->second.distance, ++n;
      continue;
    }
    const auto it = f.curves.find(study::curve_name(judge, cell.on));
    if (it != f.curves.end() && !it->second.empty()) sum += 100 * it->second.back().accuracy, ++n;
  }
  if (n == 0) return "";
  return study::is_measured_once(judge) ? fmt::format("{:.2f}", sum / n) : fmt::format("{:.1f} %", sum / n);
}

}  // namespace ebclr::cli
