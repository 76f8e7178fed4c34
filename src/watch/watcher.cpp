#include "watch/watcher.h"

#include <algorithm>

namespace ebclr::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kDepth = 6;
constexpr size_t kMostRuns = 1000, kMostEntries = 50000;
constexpr size_t kBudget =
    8 << 20;  // bytes of metrics read from one run at a time: others come to their turn
constexpr auto kPeriod = std::chrono::milliseconds(1000);
constexpr auto kInterest = std::chrono::seconds(15);  // after which nobody is watching any more

bool is_run(const fs::path& folder) {
  std::error_code e;
  return fs::is_regular_file(folder / "config.yaml", e) &&
         (fs::exists(folder / "train.log", e) || fs::exists(folder / "metrics.jsonl", e) ||
          fs::is_directory(folder / "checkpoints", e));
}

void search(const fs::path& folder, int depth, size_t& entries, std::vector<fs::path>& out, bool& truncated) {
  if (is_run(folder)) {
    out.push_back(folder);
    return;
  }
  if (depth == 0) return;
  std::error_code error;
  std::vector<fs::path> below;
  for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && it != end; it.increment(error)) {
    if (++entries > kMostEntries || out.size() >= kMostRuns) {
      truncated = true;
      return;
    }
    std::error_code e;
    // Links are not followed: they may lead around in circles.
    if (it->is_directory(e) && !it->is_symlink(e) && !it->path().filename().string().starts_with("."))
      below.push_back(it->path());
  }
  std::sort(below.begin(), below.end());
  for (const auto& b : below) search(b, depth - 1, entries, out, truncated);
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

std::vector<fs::path> find_runs(const fs::path& root, bool& truncated) {
  std::vector<fs::path> out;
  size_t entries = 0;
  search(root, kDepth, entries, out, truncated);
  return out;
}

Watcher::Watcher(std::vector<fs::path> roots) : roots_(std::move(roots)) {}

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
    for (const auto& folder : find_runs(root, truncated)) {
      std::error_code error;
      const auto key = fs::weakly_canonical(folder, error).string();
      const std::lock_guard lock(mutex_);
      if (known_.count(key) > 0 || runs_.size() >= kMostRuns) continue;
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
  truncated_ = truncated;
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
  for (int round = 0;; ++round) {
    try {
      if (round % 3 == 0) find();
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
    if (watcher_.truncated_) out["truncated"] = true;
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
