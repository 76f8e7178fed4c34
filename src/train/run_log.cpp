#include "train/run_log.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "train/trainer.h"

namespace ebclr::train {

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm tm{};
  ::gmtime_r(&now, &tm);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return text;
}

RunLog::RunLog(const std::filesystem::path& path, Observer& observer)
    : file_(std::in_place, path, "train"), observer_(observer) {}

void RunLog::write(const std::string& text) {
  if (file_) file_->append(fmt::format("{}  {}\n", utc_now(), text));
}

void RunLog::note(const std::string& text) {
  write(text);
  observer_.on_note(text);
}

void RunLog::warn(const std::string& text) {
  write("warning: " + text);
  observer_.on_warning(text);
}

}  // namespace ebclr::train
