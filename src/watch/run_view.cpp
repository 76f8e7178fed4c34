#include "watch/run_view.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/text.h"

namespace ebclr::watch {
namespace {

namespace fs = std::filesystem;
using core::number_of;
using core::text_of;
using nlohmann::json;

constexpr size_t kTail = 1 << 16;          // bytes of train.log and, at first, of metrics.jsonl
constexpr size_t kLine = 1 << 20;          // a longer line is no record of ours
constexpr size_t kDetailBytes = 64 << 20;  // of metrics.jsonl for a closer look
constexpr size_t kSmallFile = 8 << 20;     // of a summary or a judgement
constexpr size_t kPicture = 64 << 20;
constexpr auto kGrowing = std::chrono::seconds(90);

/// Bytes [from, from + most) of a file; shorter at its end, empty when it cannot be read.
std::string read_part(const fs::path& file, uint64_t from, size_t most) {
  std::string out;
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return out;
  struct stat s {};
  // A fifo or a device under that name would never end.
  if (::fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && static_cast<uint64_t>(s.st_size) > from) {
    out.resize(std::min<uint64_t>(most, static_cast<uint64_t>(s.st_size) - from));
    size_t got = 0;
    while (got < out.size()) {
      const auto n = ::pread(fd, out.data() + got, out.size() - got, static_cast<off_t>(from + got));
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    out.resize(got);
  }
  ::close(fd);
  return out;
}

json number_or_null(double v) {
  return std::isfinite(v) ? json(v) : json(nullptr);
}

/// A number of a list, as short as a chart needs it; null where there is none.
void append_number(std::string& out, double v, int digits, bool first) {
  if (!first) out += ',';
  if (std::isfinite(v)) {
    fmt::format_to(std::back_inserter(out), "{:.{}g}", v, digits);
  } else {
    out += "null";
  }
}

/// Buckets of a curve, `group` of them taken together; from the one that begins at bucket `from * group`.
std::string curves_json(const Thinned& t, size_t group, size_t from, bool bands) {
  const size_t count = (t.size() + group - 1) / group;
  const auto last_of = [&](size_t g) { return std::min(t.size(), (g + 1) * group) - 1; };
  std::string out = fmt::format("\"generation\":{},\"per\":{},\"from\":{},\"x\":{{", t.generation(),
                                t.per_bucket() * static_cast<int64_t>(group), from);
  bool first = true;
  for (const auto& [name, values] :
       {std::pair{"step", &t.step()}, std::pair{"epoch", &t.epoch()}, std::pair{"seconds", &t.seconds()},
        std::pair{"units", &t.forward_units()}}) {
    out += fmt::format("{}\"{}\":[", first ? "" : ",", name);
    for (size_t g = from; g < count; ++g) append_number(out, (*values)[last_of(g)], 9, g == from);
    out += ']';
    first = false;
  }
  out += "},\"y\":{";
  first = true;
  for (const auto& c : t.columns()) {
    // A name comes from a file: it is escaped like any other text.
    out += (first ? "" : ",") + json(c.name).dump(-1, ' ', true, json::error_handler_t::replace) +
           ":{\"mean\":[";
    first = false;
    std::string low = "],\"low\":[", high = "],\"high\":[";
    for (size_t g = from; g < count; ++g) {
      double sum = 0, n = 0, least = INFINITY, most = -INFINITY;
      for (size_t i = g * group; i <= last_of(g); ++i) {
        if (c.count[i] == 0) continue;
        sum += static_cast<double>(c.mean[i]) * c.count[i], n += c.count[i];
        least = std::min<double>(least, c.low[i]), most = std::max<double>(most, c.high[i]);
      }
      append_number(out, n > 0 ? sum / n : NAN, 5, g == from);
      if (!bands) continue;
      append_number(low, least, 5, g == from);
      append_number(high, most, 5, g == from);
    }
    if (bands) out += low + high;
    out += "]}";
  }
  return out + "}";
}

json points_json(const std::vector<AccuracyPoint>& points) {
  json epoch = json::array(), seconds = epoch, units = epoch, accuracy = epoch;
  for (const auto& p : points) {
    epoch.push_back(p.epoch), seconds.push_back(p.seconds), units.push_back(p.forward_units);
    accuracy.push_back(p.accuracy);
  }
  return {{"epoch", epoch}, {"seconds", seconds}, {"units", units}, {"accuracy", accuracy}};
}

const char* word_for(State s) {
  switch (s) {
    case State::kStarting:
      return "starting";
    case State::kRunning:
      return "running";
    case State::kFinished:
      return "finished";
    case State::kStopped:
      return "stopped";
    case State::kGaveUp:
      return "gave up";
    case State::kGone:
      return "gone";
  }
  return "";
}

}  // namespace

std::vector<HeldLock> held_locks() {
  // "3: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF". Asking for a lock to see whether it is free would take
  // it for a moment, and a training that starts in that moment would fail.
  std::vector<HeldLock> out;
  std::ifstream in("/proc/locks");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string number, kind, how, access, pid, place;
    words >> number >> kind;
    if (kind == "->") continue;  // waits for one
    words >> how >> access >> pid >> place;
    unsigned major = 0, minor = 0;
    unsigned long long inode = 0;
    if (kind == "FLOCK" && std::sscanf(place.c_str(), "%x:%x:%llu", &major, &minor, &inode) == 3)
      out.push_back({inode, makedev(major, minor), pid});
  }
  return out;
}

bool is_held(const fs::path& file, const std::vector<HeldLock>& locks) {
  struct stat s {};
  if (::stat(file.c_str(), &s) != 0) return false;
  for (const auto& l : locks) {
    if (l.inode != s.st_ino) continue;
    if (l.device == s.st_dev) return true;
    // Layered file systems tell stat another device: see whether that process has this very file open.
    std::error_code error;
    const auto path = fs::canonical(file, error);
    for (fs::directory_iterator it("/proc/" + l.pid + "/fd", error), end; !error && it != end;
         it.increment(error))
      if (std::error_code e; fs::read_symlink(it->path(), e) == path && !e) return true;
  }
  return false;
}

RunView::RunView(int64_t id, std::string name, fs::path folder)
    : id_(id), name_(std::move(name)), folder_{std::move(folder)} {}

RunView::Stamp RunView::stamp_of(const fs::path& file) {
  struct stat s {};
  if (::stat(file.c_str(), &s) != 0) return {};
  return {s.st_ino, static_cast<uint64_t>(s.st_size),
          static_cast<int64_t>(s.st_mtim.tv_sec) * 1000000000 + s.st_mtim.tv_nsec};
}

int64_t RunView::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool RunView::gone() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kGone;
}

bool RunView::behind() const {
  const std::lock_guard lock(mutex_);
  return wanted_ && offset_ + kLine < metrics_stamp_.size;
}

void RunView::want_curves() {
  const std::lock_guard lock(mutex_);
  wanted_ = true;
}

size_t RunView::bytes() const {
  const std::lock_guard lock(mutex_);
  return curves_.bytes();
}

bool RunView::refresh(size_t budget, const std::vector<HeldLock>& locks) {
  const std::lock_guard lock(mutex_);
  bool changed = version_ == 0;
  changed |= read_config();
  changed |= read_metrics(budget);
  changed |= read_summary();
  changed |= read_log();
  changed |= read_samples();
  changed |= read_judgements();
  changed |= decide(locks);
  if (changed) ++version_;
  return changed;
}

void RunView::start_over() {
  monitor_.points.clear();
  incidents_.clear();
  recent_.clear();
  gave_up_ = false;
  damaged_ = 0;
}

void RunView::take(const run::MetricRecord& r, uint64_t offset, bool into_curves) {
  if (r.event == "knn") {
    double accuracy = NAN;
    for (const auto& [key, value] : r.values)
      if (key == "knn") accuracy = value;
    if (std::isfinite(accuracy) && std::isfinite(r.epoch))
      monitor_.points.push_back({r.epoch, std::isfinite(r.seconds) ? r.seconds : 0,
                                 std::isfinite(r.forward_units) ? r.forward_units : 0, accuracy, r.step});
    return;
  }
  if (!r.event.empty()) {
    Incident incident{r.event, r.reason, r.step};
    for (const auto& [key, value] : r.values)
      if (key == "failed_step" && std::isfinite(value)) incident.step = value;
    if (incidents_.size() >= 200) incidents_.erase(incidents_.begin());
    incidents_.push_back(std::move(incident));
    gave_up_ = r.event == "gave_up";
    if (r.event == "rollback") {
      curves_.forget_after(r.step);
      std::erase_if(monitor_.points, [&](const AccuracyPoint& p) { return p.step > r.step; });
    }
    return;
  }
  if (!std::isfinite(r.epoch)) return;
  newest_ = r;
  gave_up_ = false;  // somebody went on
  recent_.emplace_back(r.epoch, r.seconds);
  if (recent_.size() > 200) recent_.erase(recent_.begin(), recent_.begin() + 100);
  if (into_curves) curves_.add(r, offset);
}

// What the last lines say, for a run that nobody looks at closely.
void RunView::read_newest() {
  const uint64_t size = metrics_stamp_.size, from = size > kTail ? size - kTail : 0;
  const auto text = read_part(folder_.metrics(), from, kTail);
  size_t at = from == 0 ? 0 : text.find('\n') + 1;
  if (from > 0 && at == 0) return;
  run::MetricRecord record;
  start_over();
  for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    if (run::parse_record(std::string_view(text).substr(at, end - at), record)) take(record, 0, false);
}

bool RunView::read_metrics(size_t budget) {
  const auto now = stamp_of(folder_.metrics());
  const bool moved = !(now == metrics_stamp_);
  if (!moved && !(wanted_ && offset_ < now.size)) return false;
  // Resuming replaces the file; so may copying.
  if (now.inode != metrics_stamp_.inode || now.size < offset_ || now.size < metrics_stamp_.size) {
    offset_ = 0;
    curves_.clear();
    newest_ = {};
  } else if (moved && metrics_stamp_.inode != 0) {
    grew_ = std::chrono::steady_clock::now();
    seen_growing_ = true;
  }
  metrics_stamp_ = now;
  if (!wanted_) {
    read_newest();
    return true;
  }
  if (offset_ == 0) start_over();
  const auto text = read_part(folder_.metrics(), offset_, std::max(budget, kLine));
  run::MetricRecord record;
  size_t at = 0;
  // A last line without its end is on its way: it is read when it is whole.
  for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const auto line = std::string_view(text).substr(at, end - at);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (run::parse_record(line, record)) {
      take(record, offset_ + at, true);
    } else {
      ++damaged_;
    }
  }
  if (at == 0 && text.size() >= kLine) at = text.size();  // no record is that long
  offset_ += at;
  return at > 0 || moved;
}

bool RunView::read_config() {
  const auto now = stamp_of(folder_.config());
  if (now == config_stamp_) return false;
  config_stamp_ = now;
  config_problem_.clear();
  config_.reset();
  try {
    config_ = run::resolve({run::read_run_layer(folder_.config())});
  } catch (const std::exception& e) {
    config_problem_ = e.what();
  }
  return true;
}

bool RunView::read_summary() {
  const auto now = stamp_of(folder_.summary());
  if (now == summary_stamp_) return false;
  summary_stamp_ = now;
  summary_ = now.inode == 0 ? json() : core::parse_json(read_part(folder_.summary(), 0, kSmallFile));
  if (!summary_.is_object()) summary_ = json();
  return true;
}

bool RunView::read_log() {
  const auto now = stamp_of(folder_.log());
  if (now == log_stamp_) return false;
  log_stamp_ = now;
  warnings_.clear();
  said_stopped_ = said_unsaved_ = false;
  const auto text = read_part(folder_.log(), now.size > kTail ? now.size - kTail : 0, kTail);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto gap = line.find("  ");
    if (gap == std::string::npos) continue;
    const auto said = line.substr(gap + 2);
    if (said.starts_with("warning: "))
      warnings_.push_back({"warning", line.substr(0, gap) + " " + said.substr(9), 0});
    said_stopped_ = said.starts_with("stopped at ");
    said_unsaved_ = said_stopped_ && said.ends_with("; goes on from the checkpoint before");
  }
  if (warnings_.size() > 50) warnings_.erase(warnings_.begin(), warnings_.end() - 50);
  return true;
}

bool RunView::read_samples() {
  const auto now = stamp_of(folder_.samples());
  if (now == samples_stamp_) return false;
  samples_stamp_ = now;
  samples_.clear();
  std::error_code error;
  for (fs::directory_iterator it(folder_.samples(), error), end; !error && it != end; it.increment(error)) {
    const auto file = it->path().filename().string();
    int64_t epoch = -1;
    if (!file.starts_with("epoch-") || !file.ends_with(".png") || file.size() > 24) continue;
    const char* last = file.data() + file.size() - 4;
    const auto [stop, problem] = std::from_chars(file.data() + 6, last, epoch);
    if (problem == std::errc() && stop == last && epoch >= 0) samples_.push_back(epoch);
  }
  std::sort(samples_.begin(), samples_.end());
  return true;
}

// Curves of `ebclr eval curve` and of studies.
bool RunView::read_judgements() {
  std::map<std::string, Stamp> found;
  std::error_code error;
  for (fs::directory_iterator it(folder_.root / "eval", error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".json" && found.size() < 100)
      found[it->path().string()] = stamp_of(it->path());
  if (found == judgement_stamps_) return false;
  judgement_stamps_ = found;
  judged_.clear();
  for (const auto& [file, stamp] : found) {
    const auto j = core::parse_json(read_part(file, 0, kSmallFile));
    if (!j.is_object() || !j.contains("points") || !j["points"].is_array()) continue;
    const auto judge = text_of(j, "judge");
    if (judge != "knn" && judge != "linear") continue;
    const auto data = text_of(j, "data").empty() ? text_of(j, "on") : text_of(j, "data");
    AccuracyCurve curve{
        fmt::format("{}{}{}", judge == "knn" ? "kNN" : "linear probe", data.empty() ? "" : " on ", data), {}};
    for (const auto& p : j["points"]) {
      if (!p.is_object() || !std::isfinite(number_of(p, "epoch")) || !std::isfinite(number_of(p, "accuracy")))
        continue;
      curve.points.push_back({number_of(p, "epoch"), number_of(p, "seconds", 0),
                              number_of(p, "forward_units", 0), number_of(p, "accuracy")});
    }
    std::stable_sort(curve.points.begin(), curve.points.end(),
                     [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
    if (!curve.points.empty()) judged_.push_back(std::move(curve));
  }
  return true;
}

bool RunView::decide(const std::vector<HeldLock>& locks) {
  const bool held = is_held(folder_.lock(), locks);
  // A copy of a run on another machine has no lock here; it grows all the same.
  const bool growing = seen_growing_ && std::chrono::steady_clock::now() - grew_ < kGrowing;
  const bool finished = summary_.is_object() && summary_.value("finished", json(false)) == true &&
                        !(newest_.step > number_of(summary_, "steps"));
  // A server of files that does not answer for a while has not removed it.
  struct stat s {};
  const bool removed = ::stat(folder_.config().c_str(), &s) != 0 && (errno == ENOENT || errno == ENOTDIR);
  State now = State::kStopped;
  if (removed) {
    now = State::kGone;
  } else if (finished && !held) {
    now = State::kFinished;
  } else if (held) {
    now = newest_.step > 0 ? State::kRunning : State::kStarting;
  } else if (gave_up_) {
    now = State::kGaveUp;
  } else if (growing && !said_stopped_) {
    now = State::kRunning;
  }
  if (now == state_ && version_ > 0) return false;
  state_ = now;
  return true;
}

double RunView::seconds_left() const {
  if (!config_ || recent_.size() < 2 || state_ != State::kRunning) return NAN;
  const auto [epoch0, seconds0] = recent_.front();
  const auto [epoch1, seconds1] = recent_.back();
  if (!(epoch1 > epoch0) || !(seconds1 > seconds0)) return NAN;
  const double left = static_cast<double>(config_->train.epochs) - epoch1;
  return std::max(0.0, left) * (seconds1 - seconds0) / (epoch1 - epoch0);
}

json RunView::status() const {
  const std::lock_guard lock(mutex_);
  json last = json::object();
  for (const auto& [key, value] : newest_.values) last[key] = number_or_null(value);
  json incidents = json::array();
  for (const auto* list : {&incidents_, &warnings_})
    for (const auto& i : *list) incidents.push_back({{"kind", i.kind}, {"text", i.text}, {"step", i.step}});
  json judged = json::array();
  if (!monitor_.points.empty()) {
    auto j = points_json(monitor_.points);
    j["judge"] = monitor_.judge;
    judged.push_back(std::move(j));
  }
  for (const auto& c : judged_) {
    auto j = points_json(c.points);
    j["judge"] = c.judge;
    judged.push_back(std::move(j));
  }
  std::string why;
  if (state_ == State::kStopped)
    why = said_unsaved_
              ? "It was stopped in a state that is not sound; it goes on from the checkpoint before."
          : said_stopped_ ? "It was stopped; everything is saved."
                          : "Nothing is training in this folder: it crashed, was killed, or is a copy.";
  if (state_ == State::kGaveUp && !incidents_.empty()) why = incidents_.back().text;
  json out = {{"id", id_},
              {"name", name_},
              {"path", folder_.root.string()},
              {"version", version_},
              {"state", word_for(state_)},
              {"why", why},
              {"epoch", number_or_null(newest_.epoch)},
              {"step", number_or_null(newest_.step)},
              {"seconds", number_or_null(newest_.seconds)},
              {"units", number_or_null(newest_.forward_units)},
              {"left", number_or_null(seconds_left())},
              {"updated", static_cast<double>(std::max(metrics_stamp_.time, log_stamp_.time)) / 1e9},
              {"last", std::move(last)},
              {"incidents", std::move(incidents)},
              {"accuracy", std::move(judged)},
              {"samples", samples_},
              {"damaged", damaged_},
              {"more_metrics", curves_.more() || newest_.more},
              {"log", log_stamp_.size},
              {"problem", config_problem_},
              {"loading", wanted_ && offset_ + kLine < metrics_stamp_.size}};
  if (state_ == State::kStopped) {
    // Whoever copies it stands elsewhere than the server.
    std::error_code error;
    const auto whole = fs::absolute(folder_.root, error).lexically_normal();
    out["resume"] = "ebclr train --resume " + core::shell_word((error ? folder_.root : whole).string());
  }
  if (config_) {
    const auto& c = *config_;
    out["method"] = c.method.name;
    out["data"] = c.data.source;
    out["epochs"] = c.train.epochs;
    out["batch"] = c.train.batch_size;
    out["seed"] = c.train.seed;
    out["collapse"] =
        c.guard.collapse / std::sqrt(static_cast<double>(std::max<int64_t>(1, c.method.head.out)));
  }
  if (summary_.is_object() && std::isfinite(number_of(summary_, "knn")))
    out["knn"] = number_of(summary_, "knn");
  return out;
}

std::string RunView::curves(const Known& known, size_t most) const {
  const std::lock_guard lock(mutex_);
  size_t group = 1;
  while (curves_.size() > most * group) group *= 2;
  const auto per = curves_.per_bucket() * static_cast<int64_t>(group);
  size_t from = 0;
  // The last bucket may have been filling: it is sent again.
  if (known.generation == curves_.generation() && known.per_bucket == per && known.have > 0)
    from = std::min(static_cast<size_t>(known.have - 1), (curves_.size() + group - 1) / group);
  // Bands are seen where few runs are shown, which then have many points.
  const bool bands = per > 1 && most > 256;
  return fmt::format("{{\"id\":{},\"version\":{},{}}}", id_, version_,
                     curves_json(curves_, group, from, bands));
}

std::string RunView::detail(const Range& range, const std::function<bool()>& given_up) const {
  fs::path file;
  uint64_t begin = 0, end = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto& x = range.axis == Range::Axis::kEpoch     ? curves_.epoch()
                    : range.axis == Range::Axis::kSeconds ? curves_.seconds()
                                                          : curves_.forward_units();
    // One more bucket on either side: lines go on to the edges.
    size_t i = static_cast<size_t>(std::lower_bound(x.begin(), x.end(), range.low) - x.begin());
    size_t j = static_cast<size_t>(std::upper_bound(x.begin(), x.end(), range.high) - x.begin()) + 2;
    i = i > 0 ? i - 1 : 0;
    file = folder_.metrics();
    begin = i < x.size() ? curves_.offset()[i] : offset_;
    end = j < x.size() ? curves_.offset()[j] : offset_;
  }
  Thinned out;
  if (end > begin && end - begin <= kDetailBytes) {
    const auto text = read_part(file, begin, end - begin);
    run::MetricRecord record;
    size_t at = 0, lines = 0;
    for (size_t stop; (stop = text.find('\n', at)) != std::string::npos; at = stop + 1) {
      if (lines++ % 1024 == 0 && given_up && given_up()) return {};
      if (!run::parse_record(std::string_view(text).substr(at, stop - at), record)) continue;
      if (record.event == "rollback") out.forget_after(record.step);
      if (record.event.empty() && std::isfinite(record.epoch)) out.add(record, begin + at);
    }
  }
  return fmt::format("{{\"id\":{},{}}}", id_, curves_json(out, 1, 0, out.per_bucket() > 1));
}

json RunView::configuration() const {
  const std::lock_guard lock(mutex_);
  json keys = json::object(), defaults = json::object();
  if (config_) {
    const auto plain = run::resolve({{"method", {{"method.name", config_->method.name}}}});
    for (const auto& f : run::fields()) {
      keys[f.key] = f.get(*config_);
      if (const auto value = f.get(plain); keys[f.key].get<std::string>() != value) defaults[f.key] = value;
    }
  }
  return {{"id", id_}, {"keys", keys}, {"defaults", defaults}, {"problem", config_problem_}};
}

json RunView::log_tail() const {
  Stamp stamp;
  {
    const std::lock_guard lock(mutex_);
    stamp = log_stamp_;
  }
  const auto text = read_part(folder_.log(), stamp.size > kTail ? stamp.size - kTail : 0, kTail);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(0, 2000));
  if (stamp.size > kTail && !lines.empty()) lines.erase(lines.begin());
  if (lines.size() > 200) lines.erase(lines.begin(), lines.end() - 200);
  return {{"id", id_}, {"lines", lines}};
}

std::optional<std::string> RunView::sample(int64_t epoch) const {
  {
    const std::lock_guard lock(mutex_);
    if (!std::binary_search(samples_.begin(), samples_.end(), epoch)) return std::nullopt;
  }
  auto bytes = read_part(folder_.samples() / fmt::format("epoch-{:04}.png", epoch), 0, kPicture);
  if (!bytes.starts_with("\x89PNG\r\n\x1a\n")) return std::nullopt;
  return bytes;
}

}  // namespace ebclr::watch
