#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/event_file.h"

namespace ebclr::train {

/// metrics.jsonl: one JSON object per line, flushed, each with "step" and "rollbacks".
class MetricsLog {
 public:
  /// Opens for appending; lines past (rollbacks, step) are removed first, so that a resumed run has no
  /// doubles. With `tensorboard` the same numbers go into an event file beside it.
  MetricsLog(std::filesystem::path path, int64_t rollbacks, int64_t step, bool tensorboard = false);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void write(const nlohmann::ordered_json& line);
  /// A picture for the event file; without one nothing happens.
  void picture(const std::string& tag, int64_t step, int width, int height,
               const std::vector<std::byte>& png);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::unique_ptr<EventFile> events_;
};

}  // namespace ebclr::train
