#include "core/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "core/error.h"

namespace ebclr::core {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporaryHead = ".ebclr-", kTemporaryTail = ".tmp";
constexpr size_t kBuffered = 64 << 10;

std::string why(int error) {
  if (error == ENOSPC || error == EDQUOT) return "the disk is full; free some space and try again";
  if (error == ELOOP) return "it is a link; links are not written through";
  return std::strerror(error);
}

/// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// 0, or what went wrong. A short write is continued, so that its reason is that of the call that failed.
int write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    data += n, size -= static_cast<size_t>(n);
  }
  return 0;
}

// 0, or what went wrong. File systems that cannot sync folders say EINVAL.
int sync_folder(const fs::path& folder) {
  const Descriptor fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return 0;  // may be written to, but not listed
  return ::fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

// 0, or what went wrong. Makes a folder and those above it; their names would survive a power cut. Those that
// were not there are added to `made`.
int make_folders(const fs::path& folder, std::vector<fs::path>& made) {
  struct stat info {};
  if (folder.empty() || (::stat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) return 0;
  if (const int error = make_folders(folder.parent_path(), made); error != 0) return error;
  if (::mkdir(folder.c_str(), 0755) == 0) {
    made.push_back(folder);
    return sync_folder(folder.parent_path());
  }
  if (errno != EEXIST) return errno;
  if (::stat(folder.c_str(), &info) != 0) return errno;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

void remove_empty(const std::vector<fs::path>& folders) {
  for (auto f = folders.rbegin(); f != folders.rend(); ++f) ::rmdir(f->c_str());
}

// O_NONBLOCK: a pipe opens at once, to be refused.
int open_regular(const fs::path& path, std::string_view component, struct stat& info) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    usage_error(component,
                error == ENOENT || error == ENOTDIR
                    ? fmt::format("{}: no such file", path.string())
                    : fmt::format("{}: cannot be opened: {}", path.string(), std::strerror(error)));
  }
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  usage_error(component, fmt::format("{}: is {}, not a file", path.string(),
                                     S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device"));
}

std::string random_name() {
  unsigned char bytes[8];
  for (size_t done = 0; done < sizeof bytes;) {
    const ssize_t n = ::getrandom(bytes + done, sizeof bytes - done, 0);
    if (n < 0 && errno != EINTR) run_error("files", "the system gives no random numbers");
    if (n > 0) done += static_cast<size_t>(n);
  }
  std::string name(kTemporaryHead);
  for (const unsigned char b : bytes) name += fmt::format("{:02x}", b);
  return name.append(kTemporaryTail);
}

bool is_temporary(const std::string& name) {
  return name.size() == kTemporaryHead.size() + 16 + kTemporaryTail.size() &&
         name.starts_with(kTemporaryHead) && name.ends_with(kTemporaryTail);
}

class Digest {
 public:
  Digest() : ctx_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(ctx_.get(), EVP_sha256(), nullptr); }
  void update(const void* data, size_t size) { EVP_DigestUpdate(ctx_.get(), data, size); }
  std::string hex() {
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(ctx_.get(), out, &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", out[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> ctx_;
};

// Reads on until the file ends or `size` bytes are there; how many came, or -1 with errno.
ssize_t read_some(int fd, void* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, static_cast<char*>(to) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

template <class Container>
Container read_whole(const fs::path& path, std::string_view component, uint64_t limit) {
  struct stat info {};
  const Descriptor fd(open_regular(path, component, info));
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > limit)
    usage_error(component,
                fmt::format("{}: is {} long; at most {} are read", path.string(),
                            human_bytes(static_cast<double>(size)), human_bytes(static_cast<double>(limit))));
  Container content(size, typename Container::value_type{});
  const ssize_t got = read_some(fd.get(), content.data(), content.size());
  if (got < 0) {
    const int error = errno;
    run_error(component, fmt::format("{}: reading failed: {}", path.string(), std::strerror(error)));
  }
  if (static_cast<uint64_t>(got) != size)
    run_error(component, fmt::format("{}: read {} of {} bytes; the file changed or the disk failed",
                                     path.string(), got, size));
  return content;
}

}  // namespace

std::vector<std::byte> read_bytes(const fs::path& path, std::string_view component, uint64_t limit) {
  return read_whole<std::vector<std::byte>>(path, component, limit);
}

std::string read_text(const fs::path& path, std::string_view component, uint64_t limit) {
  return read_whole<std::string>(path, component, limit);
}

void sweep_temporaries(const fs::path& folder) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ec)) {
    if (!is_temporary(entry.path().filename().string())) continue;
    const Descriptor fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    // A living writer holds the lock until the file has its final name.
    if (fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
  }
}

AtomicFile::AtomicFile(fs::path path, std::string_view component, unsigned mode)
    : path_(std::move(path)), component_(component) {
  const auto folder = path_.parent_path();
  sweep_temporaries(folder);
  int error = 0;
  for (int tries = 0; tries < 16; ++tries) {
    temporary_ = folder / random_name();
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd_ < 0) {
      error = errno;
      if (error == EEXIST) continue;
      if (error != ENOENT) break;
      // No such folder. Whoever made it may also have taken it back since: then once more.
      if (const int reason = make_folders(folder, made_); reason != 0) {
        error = reason;
        break;
      }
      continue;
    }
    // Whoever sweeps between open and lock removes it: then another name.
    struct stat info {};
    ::flock(fd_, LOCK_EX);
    if (::fstat(fd_, &info) != 0 || info.st_nlink > 0) return;
    ::close(fd_);
    fd_ = -1;
    error = EBUSY;
  }
  remove_empty(made_);
  run_error(component_, fmt::format("{}: cannot be written: {}", path_.string(), why(error)));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
  remove_empty(made_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const char*>(bytes.data());
  int error = 0;
  if (pending_.size() + bytes.size() > kBuffered) {
    error = write_all(fd_, pending_.data(), pending_.size());
    pending_.clear();
  }
  if (error == 0 && bytes.size() > kBuffered) {
    error = write_all(fd_, data, bytes.size());
  } else {
    pending_.append(data, bytes.size());
  }
  if (error != 0) run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), why(error)));
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), why(error)));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void AtomicFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : EIO;
      run_error(component_, fmt::format("{}: reading failed: {}", path_.string(), std::strerror(error)));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void AtomicFile::commit() {
  int error = write_all(fd_, pending_.data(), pending_.size());
  pending_.clear();
  if (error == 0 && ::fsync(fd_) != 0) error = errno;
  if (error != 0) run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), why(error)));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    error = errno;
    run_error(component_, fmt::format("{}: cannot be put in place: {}", path_.string(), why(error)));
  }
  ::close(fd_);
  fd_ = -1;
  error = sync_folder(path_.parent_path());
  if (error != 0) run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), why(error)));
}

void check_writable(const fs::path& path, std::string_view component) {
  if (path.empty()) return;
  if (!path.has_filename())
    usage_error(component, fmt::format("{}: names a folder; name a file", path.string()));
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    usage_error(component, fmt::format("{}: is a folder; name a file", path.string()));
  const AtomicFile probe(path, component);
}

void write_atomically(const fs::path& path, std::string_view text, std::string_view component) {
  AtomicFile file(path, component);
  file.write(text);
  file.commit();
}

AppendFile::AppendFile(fs::path path, std::string_view component)
    : path_(std::move(path)), component_(component) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
  int error = fd_ < 0 ? errno : 0;
  struct stat info {};
  if (fd_ >= 0 && (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode))) error = ENXIO;
  if (error == 0) return;
  if (fd_ >= 0) ::close(fd_);
  run_error(component_, fmt::format("{}: cannot be written: {}", path_.string(),
                                    error == ENXIO ? "it is a pipe or device, not a file" : why(error)));
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AppendFile::append(std::string_view record) {
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  const int error = write_all(fd_, record.data(), record.size());
  if (error == 0) return;
  // Half a record would spoil the next one.
  if (known && ::ftruncate(fd_, info.st_size) != 0) {
  }
  run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), why(error)));
}

void AppendFile::sync() {
  int error = ::fsync(fd_) == 0 ? 0 : errno;
  if (error == 0 && !name_synced_) error = sync_folder(path_.parent_path());
  if (error != 0) run_error(component_, fmt::format("{}: writing failed: {}", path_.string(), why(error)));
  name_synced_ = true;
}

void make_folder(const fs::path& folder, std::string_view component) {
  std::vector<fs::path> made;
  int error = make_folders(folder.parent_path(), made);
  if (error == 0 && ::mkdir(folder.c_str(), 0755) == 0) {
    error = sync_folder(folder.parent_path());
  } else if (error == 0 && errno != EEXIST) {
    error = errno;
  }
  struct stat info {};
  if (error == 0 && ::lstat(folder.c_str(), &info) != 0) error = errno;
  if (error != 0) run_error(component, fmt::format("{}: cannot be created: {}", folder.string(), why(error)));
  if (!S_ISDIR(info.st_mode))
    run_error(component, fmt::format("{}: is {}, not a folder", folder.string(),
                                     S_ISLNK(info.st_mode) ? "a link" : "something else"));
}

std::string sha256(std::span<const std::byte> bytes) {
  Digest digest;
  digest.update(bytes.data(), bytes.size());
  return digest.hex();
}

std::string sha256_file(const fs::path& path, std::string_view component) {
  struct stat info {};
  const Descriptor fd(open_regular(path, component, info));
  Digest digest;
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t n = read_some(fd.get(), buffer.data(), buffer.size());
    if (n < 0) {
      const int error = errno;
      run_error(component, fmt::format("{}: reading failed: {}", path.string(), std::strerror(error)));
    }
    if (n == 0) break;
    digest.update(buffer.data(), static_cast<size_t>(n));
  }
  return digest.hex();
}

std::string human_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.0f} kB", bytes / 1e3);
  return fmt::format("{:.0f} bytes", bytes);
}

}  // namespace ebclr::core
