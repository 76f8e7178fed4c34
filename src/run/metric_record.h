#pragma once
// One line of metrics.jsonl.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebclr::run {

/// Metrics that a run may have. Ours have a few dozen; memory is kept for each, so a file must not name
/// thousands.
inline constexpr size_t kMostMetrics = 256;

/// A line as read. Numbers that were not finite (null) are NaN, as are those of the named members that the
/// line does not have.
struct MetricRecord {
  double step = 0, epoch = 0, seconds = 0, forward_units = 0, rollbacks = 0;
  std::string event, reason;                           ///< empty for an ordinary record
  std::vector<std::pair<std::string, double>> values;  ///< other numbers, the first kMostMetrics of the line
  bool more = false;                                   ///< the line had more than those
};

/// Reads a line into `out`, whose memory is used again; false when it is no record: not one JSON object, or
/// without a step.
bool parse_record(std::string_view line, MetricRecord& out);

}  // namespace ebclr::run
