#pragma once
// metrics.jsonl as series over epochs. Reads what is readable: a run may be going on, or have been cut off.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ebclr::run {

/// Values of one metric over epochs; NaN where one was not finite, and between the parts before and after a
/// roll-back.
struct MetricSeries {
  std::vector<double> epoch, value;
};

/// Something that happened besides steps.
struct MetricEvent {
  std::string kind;  ///< "rollback", "gave_up"
  int64_t step = 0;  ///< where training failed
  std::string reason;
};

/// Accuracy of the online monitor after an epoch.
struct MonitorPoint {
  double epoch = 0, seconds = 0, forward_units = 0, accuracy = 0;
};

/// All of a file.
struct Metrics {
  std::map<std::string, MetricSeries> series;
  std::vector<MetricEvent> events;
  std::vector<MonitorPoint> monitor;
  int64_t lines = 0, damaged = 0;  ///< non-empty lines, and those among them that are no record
  bool cut = false;                ///< the last line is incomplete: being written, or cut off
  int64_t step = 0;                ///< of the last record
  double epoch = 0, seconds = 0, forward_units = 0;

  /// The last finite value of a metric, NaN when there is none.
  double last(const std::string& name) const;
};

/// Parses the text of a metrics.jsonl; never throws for what it says.
Metrics parse_metrics(const std::string& text);

/// Reads a metrics.jsonl; throws Error only when the file cannot be read.
Metrics read_metrics(const std::filesystem::path& file);

}  // namespace ebclr::run
