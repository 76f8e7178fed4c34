#pragma once
// The records of a run, thinned while they are read: neighbours share a bucket, and whenever there are too
// many buckets, pairs of them become one. Memory stays the same however long a run is.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "run/metric_record.h"

namespace ebclr::watch {

/// One metric: mean, lowest and highest of the finite values of each bucket.
struct Column {
  std::string name;
  std::vector<float> mean, low, high;  ///< NaN where a bucket has none
  std::vector<uint32_t> count;
};

class Thinned {
 public:
  /// Keeps at most `most` buckets, an even number.
  explicit Thinned(size_t most = 1024);

  /// Adds a record that begins at a byte of the file.
  void add(const run::MetricRecord& record, uint64_t offset);
  /// Forgets everything.
  void clear();
  /// Forgets what lies past a step: it was rolled back. Buckets that reach over it go as a whole.
  void forget_after(double step);

  size_t size() const { return step_.size(); }
  /// Records that a full bucket holds.
  int64_t per_bucket() const { return per_; }
  /// Changes whenever buckets that were there are no longer the same ones.
  int64_t generation() const { return generation_; }
  /// Positions at the end of each bucket.
  const std::vector<double>& step() const { return step_; }
  const std::vector<double>& epoch() const { return epoch_; }
  const std::vector<double>& seconds() const { return seconds_; }
  const std::vector<double>& forward_units() const { return units_; }
  const std::vector<Column>& columns() const { return columns_; }
  /// Where in the file the first record of each bucket begins.
  const std::vector<uint64_t>& offset() const { return offset_; }
  /// True if there were more metrics than run::kMostMetrics: the first of them are here.
  bool more() const { return more_; }
  /// Bytes that it takes.
  size_t bytes() const;

 private:
  void merge_pairs();
  /// The metric of this name; null if there are too many.
  Column* column(const std::string& name);

  size_t most_;
  int64_t per_ = 1, in_last_ = 0, generation_ = 0;
  std::vector<double> step_, epoch_, seconds_, units_;
  std::vector<uint64_t> offset_;
  std::vector<Column> columns_;
  bool more_ = false;
  size_t hint_ = 0;  // records name their metrics in the same order
};

}  // namespace ebclr::watch
