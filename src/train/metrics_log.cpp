#include "train/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/files.h"

namespace ebclr::train {

MetricsLog::MetricsLog(std::filesystem::path path, int64_t rollbacks, int64_t step, bool tensorboard)
    : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    std::istringstream in(core::read_text(path_, "train.metrics"));
    std::string kept;
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object()) continue;  // a line cut by a kill
      const int64_t r = json.value("rollbacks", int64_t{0}), s = json.value("step", int64_t{0});
      if (r < rollbacks || (r == rollbacks && s <= step)) kept += line + "\n";
    }
    core::write_atomically(path_, kept, "train.metrics");
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0)
    core::run_error("train.metrics",
                    fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
  if (tensorboard) {
    events_ = std::make_unique<EventFile>(path_.parent_path());
    if (step > 0) events_->restart(step + 1);
  }
}

MetricsLog::~MetricsLog() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsLog::write(const nlohmann::ordered_json& line) {
  // One write call per line, so that a kill leaves whole lines.
  const std::string text = line.dump() + "\n";
  if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    core::run_error(
        "train.metrics",
        fmt::format("{}: writing failed: {}", path_.string(),
                    errno == ENOSPC ? "the disk is full; free some space and resume" : std::strerror(errno)));
  if (!events_) return;
  const auto step = line.value("step", int64_t{0});
  const auto event = line.value("event", std::string());
  if (event == "rollback") events_->restart(step + 1);
  if (!event.empty() && event != "knn") return;
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [key, value] : line.items()) {
    if (!value.is_number() || key == "step" || key == "rollbacks") continue;
    if (event == "knn" && key != "knn") continue;
    values.emplace_back((event == "knn" ? "monitor/" : "train/") + key, value.get<double>());
  }
  events_->scalars(step, values);
}

void MetricsLog::picture(const std::string& tag, int64_t step, int width, int height,
                         const std::vector<std::byte>& png) {
  if (events_) events_->picture(step, tag, width, height, png);
}

}  // namespace ebclr::train
