#pragma once
// One run folder as it is seen while it changes: what is appended is read once, what is replaced is read
// anew, what is missing or damaged is lived with. Only ever reads.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run/run.h"
#include "watch/thinned.h"

namespace ebclr::watch {

/// A file lock that some process holds.
struct HeldLock {
  uint64_t inode = 0, device = 0;
  std::string pid;
};

/// All of this machine.
std::vector<HeldLock> held_locks();
/// Is this file among them?
bool is_held(const std::filesystem::path& file, const std::vector<HeldLock>& locks);

/// How a run is doing.
enum class State { kStarting, kRunning, kFinished, kStopped, kGaveUp, kGone };

/// An accuracy of the encoder at a point of the run.
struct AccuracyPoint {
  double epoch = 0, seconds = 0, forward_units = 0, accuracy = 0;
  double step = 0;
};

/// Accuracies by one judge.
struct AccuracyCurve {
  std::string judge;  ///< "kNN while training", "linear on cifar10"
  std::vector<AccuracyPoint> points;
};

/// A guard's step, or a warning of the log.
struct Incident {
  std::string kind;  ///< "rollback", "gave_up", "warning"
  std::string text;
  double step = 0;
};

/// Part of a chart's axis, for a closer look.
struct Range {
  enum class Axis { kEpoch, kSeconds, kForwardUnits } axis = Axis::kEpoch;
  double low = 0, high = 0;
};

class RunView {
 public:
  /// `name` is what the page calls it.
  RunView(int64_t id, std::string name, std::filesystem::path folder);

  /// Looks at the files; reads at most about `budget` bytes of new metrics. True when anything changed; call
  /// again while `behind()`.
  bool refresh(size_t budget, const std::vector<HeldLock>& locks);
  /// Is there more to read than was read?
  bool behind() const;
  /// Reads curves from now on; until then only the newest records are known.
  void want_curves();

  int64_t id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::filesystem::path& folder() const { return folder_.root; }
  /// Counts the changes.
  int64_t version() const;
  /// Was its folder removed? It may come back.
  bool gone() const;

  /// Where the run stands, for the list.
  nlohmann::json status() const;
  /// What a page has of the curves already.
  struct Known {
    int64_t generation = 0, per_bucket = 0, have = 0;
  };
  /// Curves of at most `most` points a metric as JSON, and of those only what is new.
  std::string curves(const Known& known, size_t most = 1024) const;
  /// A part of the curves, read again in detail; empty when it was given up, which is asked now and then.
  std::string detail(const Range& range, const std::function<bool()>& given_up = {}) const;
  /// Key to value, and to default where it differs.
  nlohmann::json configuration() const;
  /// The last lines of train.log.
  nlohmann::json log_tail() const;
  /// The picture of chains after an epoch; nothing when it is not among those listed.
  std::optional<std::string> sample(int64_t epoch) const;
  /// Bytes of curves kept.
  size_t bytes() const;

 private:
  struct Stamp {
    uint64_t inode = 0, size = 0;
    int64_t time = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::filesystem::path& file);
  bool read_metrics(size_t budget);
  void read_newest();
  void start_over();
  void take(const run::MetricRecord& record, uint64_t offset, bool into_curves);
  bool read_config();
  bool read_summary();
  bool read_log();
  bool read_samples();
  bool read_judgements();
  bool decide(const std::vector<HeldLock>& locks);
  double seconds_left() const;

  mutable std::mutex mutex_;
  const int64_t id_;
  const std::string name_;
  const run::RunFolder folder_;
  int64_t version_ = 0;

  bool wanted_ = false;
  Stamp metrics_stamp_, config_stamp_, summary_stamp_, log_stamp_, samples_stamp_;
  std::map<std::string, Stamp> judgement_stamps_;
  uint64_t offset_ = 0;  // bytes of metrics.jsonl taken into the curves
  Thinned curves_;
  std::vector<std::pair<double, double>> recent_;  // epoch and seconds of the newest records
  run::MetricRecord newest_;
  int64_t damaged_ = 0;
  AccuracyCurve monitor_{"kNN while training", {}};
  std::vector<AccuracyCurve> judged_;
  std::vector<Incident> incidents_, warnings_;
  std::optional<run::Config> config_;
  std::string config_problem_;
  nlohmann::json summary_;
  bool said_stopped_ = false, said_unsaved_ = false, gave_up_ = false;
  std::vector<int64_t> samples_;
  State state_ = State::kStarting;
  std::chrono::steady_clock::time_point grew_{};
  bool seen_growing_ = false;
};

}  // namespace ebclr::watch
