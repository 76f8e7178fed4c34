#include "core/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace ebclr::core {
namespace {

int open_lock(const std::filesystem::path& file, std::string_view component) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd < 0) {
    const int why = errno;
    run_error(component, fmt::format("{}: cannot be written: {}", file.string(),
                                     why == ELOOP ? "it is a link" : std::strerror(why)));
  }
  return fd;
}

[[noreturn]] void no_locks(const std::filesystem::path& file, std::string_view component, int why) {
  run_error(component, fmt::format("{}: cannot be locked ({}); this file system has no locks: choose another "
                                   "folder, or mount it with them (Lustre: -o flock)",
                                   file.string(), std::strerror(why)));
}

}  // namespace

std::optional<FileLock> FileLock::try_take(const std::filesystem::path& file, std::string_view component) {
  FileLock lock(open_lock(file, component));
  while (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return std::nullopt;
    no_locks(file, component, errno);
  }
  return lock;
}

FileLock FileLock::wait(const std::filesystem::path& file, std::string_view component,
                        const std::function<void()>& on_wait) {
  FileLock lock(open_lock(file, component));
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) return lock;
  if (on_wait) on_wait();
  while (::flock(lock.fd_, LOCK_EX) != 0)
    if (errno != EINTR) no_locks(file, component, errno);
  return lock;
}

FileLock::FileLock(int fd) : fd_(fd), holder_(::getpid()) {}
FileLock::~FileLock() {
  if (fd_ < 0) return;
  // flock belongs to the open file, and a forked child has that open too: closing alone would leave the lock
  // to it. The child's own copy of this object must not release it.
  if (holder_ == ::getpid()) ::flock(fd_, LOCK_UN);
  ::close(fd_);
}
FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), holder_(other.holder_) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(holder_, other.holder_);
  return *this;
}

}  // namespace ebclr::core
