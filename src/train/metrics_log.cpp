#include "train/metrics_log.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "core/json.h"

namespace ebclr::train {
namespace {

constexpr std::string_view kMetricsComponent = "train.metrics";

// A whole number of a line; -1 when it is none, absent: 0.
int64_t whole(const nlohmann::json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end()) return 0;
  return it->is_number_integer() ? it->get<int64_t>() : -1;
}

// A number of a line; NaN when it is none.
double number(const nlohmann::json& line, const char* key) {
  const auto it = line.find(key);
  return it != line.end() && it->is_number() ? it->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void MonitorScores::see(std::string_view event, int64_t step, double knn) {
  if (event == "rollback") std::erase_if(scores_, [&](const auto& s) { return s.first > step; });
  if (event == "knn" && std::isfinite(knn)) scores_.emplace_back(step, knn);
}

double MonitorScores::last() const {
  return scores_.empty() ? std::numeric_limits<double>::quiet_NaN() : scores_.back().second;
}

KeptLines keep_lines(const std::string& text, int64_t rollbacks, int64_t step) {
  KeptLines kept;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto json = core::parse_json(line);
    if (!json.is_object()) continue;  // a line cut by a kill
    const int64_t r = whole(json, "rollbacks"), s = whole(json, "step");
    if (r < 0 || s < 0) continue;  // no line of ours
    if (r > rollbacks || (r == rollbacks && s > step)) continue;
    kept.text += line + "\n";
    if (json.contains("loss") && json["loss"].is_number()) kept.last_loss = json["loss"].get<double>();
    if (const auto event = json.find("event"); event != json.end() && event->is_string())
      kept.scores.see(event->get<std::string>(), s, number(json, "knn"));
  }
  return kept;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, int64_t rollbacks, int64_t step, bool tensorboard) {
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) {
    const auto kept = keep_lines(core::read_text(path, kMetricsComponent), rollbacks, step);
    core::write_atomically(path, kept.text, kMetricsComponent);
    last_loss_ = kept.last_loss;
    scores_ = kept.scores;
  }
  file_ = std::make_unique<core::AppendFile>(path, kMetricsComponent);
  if (!tensorboard) return;
  events_ = std::make_unique<EventFile>(path.parent_path());
  if (step > 0) events_->restart(step + 1);
}

void MetricsLog::write(const nlohmann::ordered_json& line) {
  if (!file_) return;
  file_->append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  const auto step = line.value("step", int64_t{0});
  const auto event = line.value("event", std::string());
  scores_.see(event, step, line.value("knn", 0.0));
  if (!events_) return;
  if (event == "rollback") events_->restart(step + 1);
  if (!event.empty() && event != "knn") return;
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number() || key == "step" || key == "rollbacks") continue;
    if (event == "knn" && key != "knn") continue;
    values.emplace_back((event == "knn" ? "monitor/" : "train/") + key, value.get<double>());
  }
  events_->scalars(step, values);
}

void MetricsLog::picture(const std::string& tag, int64_t step, int width, int height,
                         const std::vector<std::byte>& png) {
  if (events_) events_->picture(step, tag, width, height, png);
}

}  // namespace ebclr::train
