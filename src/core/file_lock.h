#pragma once
// A lock file that one process holds at a time; the system releases it when the process ends, however it
// ends. A process that was forked from the holder does not hold it: what the holder lets go is free.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace ebclr::core {

class FileLock {
 public:
  /// Takes the lock at once, or returns nothing because another process has it. Creates the file; throws
  /// Error in the name of `component` when it cannot, or when the file system has no locks. On a network file
  /// system that has them (NFS, Lustre mounted with flock) processes of other hosts count.
  static std::optional<FileLock> try_take(const std::filesystem::path& file, std::string_view component);
  /// Waits for the lock; `on_wait` is called first if another process has it.
  static FileLock wait(const std::filesystem::path& file, std::string_view component,
                       const std::function<void()>& on_wait = {});

  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd);
  int fd_ = -1;
  pid_t holder_;
};

}  // namespace ebclr::core
