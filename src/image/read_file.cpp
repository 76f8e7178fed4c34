#include "image/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace ebclr::image {

std::vector<std::byte> read_regular(const std::filesystem::path& path, uint64_t limit, FileStamp* stamp) {
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) ::close(fd);
    }
  };
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  const Closer file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
  if (file.fd < 0)
    core::usage_error("image", fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(errno)));
  struct stat s {};
  if (::fstat(file.fd, &s) != 0 || !S_ISREG(s.st_mode))
    core::usage_error("image", fmt::format("{}: not a regular file", path.string()));
  const auto size = static_cast<uint64_t>(s.st_size);
  if (size > kMaxFileBytes && limit > kMaxFileBytes / 2)
    core::usage_error("image",
                      fmt::format("{}: {} bytes; files over 1 GB are not read", path.string(), size));
  if (stamp) *stamp = {size, int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec};
  std::vector<std::byte> bytes(std::min(size, limit));
  size_t have = 0;
  while (have < bytes.size()) {
    const auto n = ::read(file.fd, bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      core::usage_error("image", fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace ebclr::image
