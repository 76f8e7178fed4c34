#include "watch/watcher.h"

#include <algorithm>

namespace ebclr::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kBudget =
    8 << 20;  // bytes of metrics read from one run at a time: others come to their turn
constexpr auto kPeriod = std::chrono::milliseconds(1000);
constexpr auto kSearchPeriod = std::chrono::seconds(3);
constexpr auto kInterest = std::chrono::seconds(15);  // after which nobody is watching any more

bool is_run(const fs::path& folder) {
  std::error_code e;
  return fs::is_regular_file(folder / "config.yaml", e) &&
         (fs::exists(folder / "train.log", e) || fs::exists(folder / "metrics.jsonl", e) ||
          fs::is_directory(folder / "checkpoints", e));
}

/// Adds the folders directly below one; false when there are more than may be looked at.
bool add_folders(const fs::path& folder, const SearchLimits& limits, size_t& entries, size_t most,
                 std::vector<fs::path>& out) {
  std::error_code error;
  size_t here = 0;
  for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && it != end; it.increment(error)) {
    if (++here > limits.in_folder || ++entries > limits.entries) return false;
    std::error_code e;
    // Links are not followed: they may lead around in circles. What an entry is, the folder itself says.
    if (!it->is_directory(e) || it->is_symlink(e) || it->path().filename().string().starts_with("."))
      continue;
    if (out.size() >= most) return false;
    out.push_back(it->path());
  }
  return true;
}

std::string compact(const json& j) {
  return j.dump(-1, ' ', true, json::error_handler_t::replace);
}

json to_json(const StudyBoard& b) {
  json runs = json::array(), cells = json::array();
  for (const auto& r : b.runs)
    runs.push_back({{"title", r.title},
                    {"state", r.state},
                    {"doing", r.doing},
                    {"folder", r.folder},
                    {"share", r.share}});
  for (const auto& c : b.cells)
    cells.push_back({{"row", c.row},
                     {"column", c.column},
                     {"done", c.done},
                     {"failed", c.failed},
                     {"runs", c.runs},
                     {"score", c.score}});
  return {{"name", b.name},
          {"title", b.title},
          {"scale", b.scale},
          {"rows", b.rows},
          {"columns", b.columns},
          {"cells", cells},
          {"runs", runs},
          {"share", b.share},
          {"left", b.seconds_left < 0 ? json() : json(b.seconds_left)},
          {"report", b.report}};
}

}  // namespace

// Level by level: a deep data set beside the runs does not use up what may be looked at before their turn.
std::vector<fs::path> find_runs(const fs::path& root, bool& truncated, const SearchLimits& limits) {
  std::vector<fs::path> out, level{root};
  size_t entries = 0, folders = 0;
  for (int depth = limits.depth; depth >= 0 && !level.empty(); --depth) {
    folders += level.size();
    std::vector<fs::path> below;
    for (const auto& folder : level) {
      if (is_run(folder)) {
        if (out.size() < limits.runs) {
          out.push_back(folder);
        } else {
          truncated = true;
        }
      } else if (depth > 0) {
        const size_t most = limits.folders > folders ? limits.folders - folders : 0;
        truncated |= !add_folders(folder, limits, entries, most, below);
      }
    }
    std::sort(below.begin(), below.end());
    level = std::move(below);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Watcher::Watcher(std::vector<fs::path> roots, SearchLimits limits)
    : roots_(std::move(roots)), limits_(limits) {}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watcher::start() {
  thread_ = std::thread([this] { loop(); });
}

void Watcher::find() {
  bool truncated = false;
  for (const auto& root : roots_) {
    for (const auto& folder : find_runs(root, truncated, limits_)) {
      std::error_code error;
      const auto key = fs::weakly_canonical(folder, error).string();
      const std::lock_guard lock(mutex_);
      if (known_.count(key) > 0) continue;
      if (runs_.size() >= limits_.runs) {
        truncated = true;
        continue;
      }
      // As short as tells it apart: the path below what was asked for.
      const auto normal = (fs::path(root) / "").lexically_normal().parent_path();
      auto name = folder == root ? normal.filename().string() : folder.lexically_relative(root).string();
      if (name.empty() || name == ".")
        name = fs::absolute(folder, error).lexically_normal().filename().string();
      for (const auto& r : runs_)
        if (r->name() == name) {
          name = folder.string();
          break;
        }
      const auto id = static_cast<int64_t>(runs_.size());
      known_[key] = id;
      runs_.push_back(std::make_shared<RunView>(id, name, folder));
    }
  }
  const std::lock_guard lock(mutex_);
  if (truncated_ == truncated) return;
  truncated_ = truncated;
  ++change_;
  changed_.notify_all();
}

std::vector<std::shared_ptr<RunView>> Watcher::runs() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

std::shared_ptr<RunView> Watcher::run(int64_t id) const {
  const std::lock_guard lock(mutex_);
  return id >= 0 && id < static_cast<int64_t>(runs_.size()) ? runs_[static_cast<size_t>(id)] : nullptr;
}

bool Watcher::refresh() {
  const auto locks = held_locks();
  bool more = false, any = false;
  for (const auto& r : runs()) {
    any |= r->refresh(kBudget, locks);
    more |= r->behind();
  }
  if (any) {
    const std::lock_guard lock(mutex_);
    ++change_;
    changed_.notify_all();
  }
  return more;
}

void Watcher::loop() {
  for (Clock::time_point search_at{};;) {
    try {
      if (const auto begun = Clock::now(); begun >= search_at) {
        find();
        // Large trees are searched seldom: a twentieth of the time at most.
        search_at = begun + std::max<Clock::duration>(kSearchPeriod, 20 * (Clock::now() - begun));
      }
      for (int i = 0; i < 20 && refresh(); ++i) {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
      }
    } catch (
        ...) {  // NOLINT(bugprone-empty-catch): a file system may do anything; the next round tries again
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kPeriod, [&] { return stop_; });
    // Nobody there: no look either.
    while (!stop_ && Clock::now() - asked_ > kInterest) wake_.wait_for(lock, std::chrono::seconds(60));
    if (stop_) return;
  }
}

void Watcher::show(const StudyBoard& board) {
  auto j = to_json(board);
  const std::lock_guard lock(mutex_);
  if (j == study_) return;
  study_ = std::move(j);
  ++study_version_;
  ++change_;
  changed_.notify_all();
}

std::string Watcher::Listener::next(std::chrono::milliseconds patience) {
  json out = json::object();
  std::vector<std::shared_ptr<RunView>> runs;
  {
    std::unique_lock lock(watcher_.mutex_);
    watcher_.asked_ = Clock::now();
    watcher_.wake_.notify_all();
    watcher_.changed_.wait_for(lock, patience,
                               [&] { return watcher_.stop_ || watcher_.change_ != seen_change_; });
    if (watcher_.change_ == seen_change_) return {};
    seen_change_ = watcher_.change_;
    if (watcher_.study_version_ != seen_study_) {
      out["study"] = watcher_.study_;
      seen_study_ = watcher_.study_version_;
    }
    // A page that comes back must hear it too when all is found again.
    if (!greeted_ || watcher_.truncated_ != seen_truncated_)
      out["truncated"] = seen_truncated_ = watcher_.truncated_;
    runs = watcher_.runs_;
  }
  json list = json::array();
  for (const auto& r : runs) {
    const auto version = r->version();
    if (version == 0) continue;  // not looked at yet
    auto [it, fresh] = seen_.try_emplace(r->id(), 0);
    if (it->second == version) continue;
    it->second = version;
    list.push_back(r->status());
  }
  if (list.empty() && out.empty() && greeted_) return {};
  greeted_ = true;
  out["runs"] = std::move(list);
  return compact(out);
}

}  // namespace ebclr::watch
