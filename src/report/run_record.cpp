#include "report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"

namespace ebclr::report {
namespace {

namespace fs = std::filesystem;
using core::number_of;
using core::text_of;
using nlohmann::json;

/// As a count; 0 for what is none.
int64_t whole(double v) {
  return std::isfinite(v) && std::abs(v) < 9e18 ? static_cast<int64_t>(v) : 0;
}

/// Points of a curve that are whole; others are left out and counted.
std::vector<eval::CurvePoint> points_of(const json& list, size_t& damaged) {
  std::vector<eval::CurvePoint> out;
  for (const auto& p : list) {
    if (!p.is_object() || !std::isfinite(number_of(p, "epoch")) || !std::isfinite(number_of(p, "accuracy"))) {
      ++damaged;
      continue;
    }
    out.push_back({number_of(p, "epoch"), number_of(p, "seconds", 0), number_of(p, "forward_units", 0),
                   number_of(p, "accuracy"), whole(number_of(p, "correct")), whole(number_of(p, "total"))});
  }
  return out;
}

void read_confusion(const json& row, Judgement& out) {
  const auto counts = row.find("confusion");
  const auto classes = row.find("per_class");
  if (counts == row.end() || classes == row.end() || !counts->is_array() || counts->size() != classes->size())
    return;
  for (const auto& c : *classes) out.names.push_back(c.is_object() ? text_of(c, "class") : "");
  for (const auto& line : *counts) {
    std::vector<int64_t> values;
    for (const auto& v : line) values.push_back(v.is_number_integer() ? v.get<int64_t>() : 0);
    if (!line.is_array() || values.size() != out.names.size()) {
      out.confusion.clear();
      return;
    }
    out.confusion.push_back(std::move(values));
  }
}

std::vector<fs::path> files_in(const fs::path& folder, const char* extension) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == extension && it->is_regular_file(error)) out.push_back(it->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

void add_judgement(const std::string& text, const std::string& shown, RunRecord& out) {
  const json j = core::parse_json(text);
  if (!j.is_object()) {
    out.notes.push_back(fmt::format("{} is damaged and was left out", shown));
    return;
  }
  if (const auto points = j.find("points"); points != j.end() && points->is_array()) {
    eval::Curve c;
    c.method = out.run.config().method.name;
    c.judge = text_of(j, "judge");
    c.protocol = text_of(j, "protocol");
    if (c.protocol.empty()) c.protocol = c.judge == "linear" ? "honest" : "paper";
    c.data = text_of(j, "data");
    c.settings = text_of(j, "settings");
    c.schedule = text_of(j, "schedule");
    c.train_images = whole(number_of(j, "train_images"));
    c.test_images = whole(number_of(j, "test_images"));
    // Not every list of points is of accuracies.
    if (c.judge != "knn" && c.judge != "linear") return;
    size_t damaged = 0;
    c.points = points_of(*points, damaged);
    std::stable_sort(c.points.begin(), c.points.end(),
                     [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
    if (damaged > 0)
      out.notes.push_back(fmt::format("{}: {} points are damaged and were left out", shown, damaged));
    if (c.points.empty()) return;
    const auto& last = c.points.back();
    out.judgements.push_back({c.judge, c.protocol, c.data, last.accuracy, shown, last.epoch});
    out.curves.push_back(std::move(c));
    return;
  }
  if (const auto rows = j.find("rows"); rows != j.end() && rows->is_array()) {
    for (const auto& row : *rows) {
      if (!row.is_object() || text_of(row, "subject") != "trained encoder" ||
          !std::isfinite(number_of(row, "accuracy")))
        continue;
      Judgement g{text_of(row, "judge"),
                  text_of(row, "protocol"),
                  text_of(j, "data"),
                  number_of(row, "accuracy"),
                  shown,
                  number_of(row, "epoch"),
                  whole(number_of(j, "step"))};
      // Rows name whole epochs; without the step nothing tells whether batches have been learnt since.
      if (g.step == 0 && g.epoch == std::floor(out.newest.epochs)) g.epoch = out.newest.epochs;
      read_confusion(row, g);
      out.judgements.push_back(std::move(g));
    }
  }
}

std::string older_weights(const RunRecord& run, double epoch, int64_t step) {
  const auto& newest = run.newest;
  const bool older = step > 0 ? step < newest.step : epoch < newest.epochs;
  if (!older) return "";
  const auto shown = [](double epochs) { return fmt::format("{:g}", std::round(100 * epochs) / 100); };
  if (step > 0 && (!std::isfinite(epoch) || shown(epoch) == shown(newest.epochs)))
    return fmt::format("step {} of {}", step, newest.step);
  return fmt::format("epoch {} of {}", shown(epoch), shown(newest.epochs));
}

RunRecord read_record(const fs::path& folder) {
  RunRecord out;
  out.name = folder.lexically_normal().filename().string();
  out.run = run::Run::open(folder);
  const auto& paths = out.run.folder();
  std::error_code error;
  if (fs::exists(paths.metrics(), error)) {
    try {
      out.metrics = run::read_metrics(paths.metrics());
      if (out.metrics.damaged > 0) {
        out.notes.push_back(fmt::format("metrics.jsonl: {} of {} lines are damaged and were left out",
                                        out.metrics.damaged, out.metrics.lines));
      }
      if (out.metrics.cut) out.notes.push_back("metrics.jsonl: the last line is incomplete and was left out");
    } catch (const core::Error& e) {
      out.notes.push_back(e.what());
    }
  }
  if (out.metrics.series.empty()) out.notes.push_back("no metrics yet: there are no training curves");
  if (fs::exists(paths.summary(), error)) {
    try {
      out.summary = core::parse_json(core::read_text(paths.summary(), "report"));
    } catch (const core::Error& e) {
      out.notes.push_back(e.what());
    }
    if (!out.summary.is_object()) {
      out.summary = nullptr;
      out.notes.push_back("summary.json is damaged; figures come from metrics.jsonl");
    }
  }
  const bool finished = out.summary.is_object() && out.summary.value("finished", json(false)) == true;
  const bool gave_up = !out.metrics.events.empty() && out.metrics.events.back().kind == "gave_up";
  const bool begun = out.metrics.step > 0 || !run::list_checkpoints(paths.checkpoints()).empty();
  out.state = finished  ? RunState::kFinished
              : gave_up ? RunState::kGaveUp
              : begun   ? RunState::kUnfinished
                        : RunState::kEmpty;
  // A run that was made longer has its old summary until it ends again.
  if (finished && out.metrics.step > number_of(out.summary, "steps")) out.state = RunState::kUnfinished;
  out.newest = eval::reached(out.run).value_or(eval::Reached{out.metrics.epoch, out.metrics.step});
  out.sessions = run::read_sessions(paths);
  for (const auto& file : files_in(paths.root / "eval", ".json")) {
    try {
      add_judgement(core::read_text(file, "report"), "eval/" + file.filename().string(), out);
    } catch (const core::Error& e) {
      out.notes.push_back(e.what());
    }
  }
  for (const auto& file : files_in(paths.samples(), ".png")) {
    const std::string stem = file.stem().string();
    const auto dash = stem.rfind('-');
    int64_t epoch = -1;
    const char* first = stem.data() + (dash == std::string::npos ? 0 : dash + 1);
    std::from_chars(first, stem.data() + stem.size(), epoch);
    if (epoch >= 0) out.chains.push_back({epoch, file});
  }
  std::stable_sort(out.chains.begin(), out.chains.end(),
                   [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  if (fs::exists(paths.log(), error)) {
    try {
      std::istringstream in(core::read_text(paths.log(), "report"));
      for (std::string line; out.log.size() < 3 && std::getline(in, line);) {
        const auto gap = line.find("  ");
        out.log.push_back(gap == std::string::npos ? line : line.substr(gap + 2));
      }
    } catch (const core::Error& e) {
      out.notes.push_back(e.what());
    }
  }
  return out;
}

std::vector<std::string> short_names(const std::vector<fs::path>& folders) {
  std::vector<std::vector<std::string>> parts;
  size_t longest = 1;
  for (const auto& f : folders) {
    std::vector<std::string> list;
    std::error_code error;
    auto path = fs::absolute(f, error).lexically_normal();
    for (const auto& p : path)
      if (!p.empty() && p != "/") list.push_back(p.string());
    longest = std::max(longest, list.size());
    parts.push_back(std::move(list));
  }
  std::vector<std::string> out;
  for (size_t depth = 1; depth <= longest; ++depth) {
    out.clear();
    for (const auto& list : parts) {
      std::string name;
      for (size_t i = list.size() - std::min(depth, list.size()); i < list.size(); ++i)
        name += (name.empty() ? "" : "/") + list[i];
      out.push_back(name.empty() ? "run" : name);
    }
    if (std::set<std::string>(out.begin(), out.end()).size() == out.size()) break;
  }
  return out;
}

std::vector<RunRecord> read_records(const std::vector<fs::path>& folders) {
  const auto names = short_names(folders);
  std::vector<RunRecord> out;
  for (size_t i = 0; i < folders.size(); ++i) {
    out.push_back(read_record(folders[i]));
    out.back().name = names[i];
  }
  return out;
}

}  // namespace ebclr::report
