#include "train/metrics_log.h"

#include <sstream>

namespace ebclr::train {
namespace {

constexpr std::string_view kMetricsComponent = "train.metrics";

// A whole number of a line; -1 when it is none, absent: 0.
int64_t whole(const nlohmann::json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end()) return 0;
  return it->is_number_integer() ? it->get<int64_t>() : -1;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, int64_t rollbacks, int64_t step) {
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) {
    std::istringstream in(core::read_text(path, kMetricsComponent));
    std::string kept;
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object()) continue;  // a line cut by a kill
      const int64_t r = whole(json, "rollbacks"), s = whole(json, "step");
      if (r < 0 || s < 0) continue;  // no line of ours
      if (r > rollbacks || (r == rollbacks && s > step)) continue;
      kept += line + "\n";
      if (json.contains("loss") && json["loss"].is_number()) last_loss_ = json["loss"].get<double>();
    }
    core::write_atomically(path, kept, kMetricsComponent);
  }
  file_ = std::make_unique<core::AppendFile>(path, kMetricsComponent);
}

void MetricsLog::write(const nlohmann::ordered_json& line) {
  file_->append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace ebclr::train
