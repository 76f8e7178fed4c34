#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "run/config.h"
#include "temp_dir.h"

namespace ebclr::testing {

inline void append(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::app) << text;
}

inline std::string line(int step, double loss, const std::string& more = "") {
  return "{\"step\":" + std::to_string(step) + ",\"rollbacks\":0,\"epoch\":" + std::to_string(step / 10.0) +
         ",\"loss\":" + std::to_string(loss) + more + ",\"seconds\":" + std::to_string(2.0 * step) +
         ",\"forward_units\":" + std::to_string(29.0 * step) + "}\n";
}

/// A run folder as training leaves it after its first second.
inline std::filesystem::path begin_run(const std::filesystem::path& folder,
                                       const std::string& method = "ebclr") {
  append(folder / "config.yaml",
         run::to_yaml(run::resolve(
             {{"test", {{"method.name", method}, {"data.source", "shapes"}, {"train.epochs", "20"}}}})));
  append(folder / "train.log", "2026-01-01T00:00:00Z  " + method + " on shapes\n");
  append(folder / "metrics.jsonl", "");
  return folder;
}

/// Holds the folder's lock as a training does.
class HeldFolder {
 public:
  explicit HeldFolder(const std::filesystem::path& folder)
      : fd_(::open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    ::flock(fd_, LOCK_EX | LOCK_NB);
  }
  ~HeldFolder() { ::close(fd_); }
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

 private:
  int fd_;
};

}  // namespace ebclr::testing
