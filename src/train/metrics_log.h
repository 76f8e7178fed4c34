#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace ebclr::train {

/// metrics.jsonl: one JSON object per line, flushed, each with "step" and "rollbacks".
class MetricsLog {
 public:
  /// Opens for appending; lines past (rollbacks, step) are removed first, so that a resumed run has no
  /// doubles.
  MetricsLog(std::filesystem::path path, int64_t rollbacks, int64_t step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void write(const nlohmann::ordered_json& line);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace ebclr::train
