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

}  // namespace

std::optional<FileLock> FileLock::try_take(const std::filesystem::path& file, std::string_view component) {
  FileLock lock(open_lock(file, component));
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return lock;
}

FileLock FileLock::wait(const std::filesystem::path& file, std::string_view component,
                        const std::function<void()>& on_wait) {
  FileLock lock(open_lock(file, component));
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) return lock;
  if (on_wait) on_wait();
  while (::flock(lock.fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}
FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

}  // namespace ebclr::core
