#pragma once
// All runs below some folders, watched from one thread. Runs that appear later are found, each keeps its
// number as long as the watcher lives.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "watch/run_view.h"

namespace ebclr::watch {

/// A study while it runs, as its page shows it.
struct StudyBoard {
  struct Run {
    std::string title, state, doing, folder;  ///< state: waiting, running, done, failed, blocked, stopped
    double share = 0;                         ///< of its work that is done
  };
  struct Cell {
    std::string row, column;
    int done = 0, failed = 0, runs = 0;
    std::string score;  ///< "41.2 %" once there is one
  };
  std::string name, title, scale;
  std::vector<std::string> rows, columns;  ///< labels, in the order of the table
  std::vector<Cell> cells;
  std::vector<Run> runs;
  double share = 0;          ///< of all work
  double seconds_left = -1;  ///< negative: not known
  std::string report;        ///< where the report will be
};

/// How far the search for runs goes.
struct SearchLimits {
  int depth = 6;              ///< folders below the first
  size_t runs = 1000;         ///< found
  size_t folders = 50000;     ///< looked into
  size_t in_folder = 200000;  ///< entries of one folder: the pictures of a data set may lie beside the runs
  size_t entries = 1000000;   ///< of all
};

class Watcher {
 public:
  /// Folders that are runs, or hold runs somewhere below; they need not be there yet.
  explicit Watcher(std::vector<std::filesystem::path> roots, SearchLimits limits = {});
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Watches from a thread of its own, as long as somebody asks.
  void start();
  /// One look at everything; true when there is more to read at once.
  bool refresh();
  /// Finds runs that are new.
  void find();

  /// The run of a number; null when there is none.
  std::shared_ptr<RunView> run(int64_t id) const;
  std::vector<std::shared_ptr<RunView>> runs() const;

  /// What is shown besides the runs.
  void show(const StudyBoard& board);

  /// What changed since a listener's last question; waits up to `patience` for a change, then is empty.
  class Listener {
   public:
    explicit Listener(Watcher& watcher) : watcher_(watcher) {}
    std::string next(std::chrono::milliseconds patience);

   private:
    Watcher& watcher_;
    std::map<int64_t, int64_t> seen_;
    int64_t seen_study_ = 0, seen_change_ = -1;
    bool greeted_ = false, seen_truncated_ = false;
  };

 private:
  void loop();

  const std::vector<std::filesystem::path> roots_;
  const SearchLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, wake_;
  std::vector<std::shared_ptr<RunView>> runs_;
  std::map<std::string, int64_t> known_;  // by path
  nlohmann::json study_;
  int64_t study_version_ = 0, change_ = 0;
  std::chrono::steady_clock::time_point asked_{};
  bool stop_ = false, truncated_ = false;
  std::thread thread_;
};

/// Run folders at or below a folder in the order of their paths; those near to it are found first.
/// `truncated` is set when a limit left folders unseen.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& root, bool& truncated,
                                             const SearchLimits& limits = {});

}  // namespace ebclr::watch
