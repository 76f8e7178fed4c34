#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/files.h"

namespace ebclr::train {

class Observer;

/// The moment in UTC as 2026-11-16T14:00:00Z.
std::string utc_now();

/// Says things to the observer and writes them, with the time, to train.log.
class RunLog {
 public:
  /// Without a file: for ranks that leave it to rank 0.
  explicit RunLog(Observer& observer) : observer_(observer) {}
  /// Opens for appending; throws Error when that cannot be done.
  RunLog(const std::filesystem::path& path, Observer& observer);

  void note(const std::string& text);
  void warn(const std::string& text);
  /// For train.log alone.
  void write(const std::string& text);

 private:
  std::optional<core::AppendFile> file_;
  Observer& observer_;
};

}  // namespace ebclr::train
