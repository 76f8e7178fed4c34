#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files.h"
#include "train/event_file.h"

namespace ebclr::train {

/// Accuracies of the monitor that still count: a roll-back takes those of later steps along.
class MonitorScores {
 public:
  /// A line of the log with this "event" and "step"; `knn` counts where the event is one.
  void see(std::string_view event, int64_t step, double knn);
  /// The newest; NaN when there is none.
  double last() const;

 private:
  std::vector<std::pair<int64_t, double>> scores_;  // step and accuracy
};

/// What a run that is resumed keeps of its log.
struct KeptLines {
  std::string text;
  double last_loss = 0;  ///< of the newest line; 0 when there is none
  MonitorScores scores;
};
/// The whole lines of a log that are not past (rollbacks, step).
KeptLines keep_lines(const std::string& text, int64_t rollbacks, int64_t step);

/// metrics.jsonl: one JSON object per line, flushed, each with "step" and "rollbacks".
class MetricsLog {
 public:
  /// Keeps nothing: for ranks that leave it to rank 0.
  MetricsLog() = default;
  /// Opens for appending; lines past (rollbacks, step) are removed first, so that a resumed run has no
  /// doubles. With `tensorboard` the same numbers go into an event file beside it.
  MetricsLog(const std::filesystem::path& path, int64_t rollbacks, int64_t step, bool tensorboard = false);
  /// Appends a line, whole or not at all.
  void write(const nlohmann::ordered_json& line);
  /// A picture for the event file; without one nothing happens.
  void picture(const std::string& tag, int64_t step, int width, int height,
               const std::vector<std::byte>& png);
  /// Until all lines so far would survive a power cut.
  void sync() {
    if (file_) file_->sync();
  }
  /// Its event file; empty without one.
  std::filesystem::path events() const { return events_ ? events_->path() : std::filesystem::path(); }
  /// The loss of the newest line that was there at the beginning; 0 when there was none.
  double last_loss() const { return last_loss_; }
  /// The accuracy that the monitor saw last, as far as the run stands by it; NaN when there is none.
  double last_knn() const { return scores_.last(); }

 private:
  MonitorScores scores_;
  double last_loss_ = 0;
  std::unique_ptr<core::AppendFile> file_;
  std::unique_ptr<EventFile> events_;
};

}  // namespace ebclr::train
