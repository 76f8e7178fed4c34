#include "faulty_disk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

namespace ebclr::testing {
namespace {

// Names below are made and removed by raw system calls: the shim must not meet itself.
struct NameChange {
  enum Kind { kCreated, kRemoved, kRenamed, kMadeFolder } kind;
  std::string folder, from, to,
      backup;  // backup: a second name of what was removed or replaced; may be empty
};
struct OpenFile {
  std::string path;
  off_t synced = 0;  // bytes that are safe
  bool dirty = false, folder = false;
};
struct Disk {
  std::mutex mutex;
  std::string root;
  Fault fault = Fault::kNone;
  int64_t at = 0, count = 0, backups = 0;
  bool struck = false, out_of_space = false;
  std::string what, followed;
  std::map<int, OpenFile> files;
  std::vector<NameChange> unsynced;
};

Disk& disk() {
  static auto* d = new Disk;  // never destroyed: streams write at exit
  return *d;
}

std::string absolute(const char* path) {
  if (path[0] == '/') return path;
  char here[4096];
  return ::getcwd(here, sizeof here) ? std::string(here) + "/" + path : path;
}
bool ours(const std::string& path) {
  const auto& root = disk().root;
  return !root.empty() && path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}
std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

int raw_rename(const std::string& a, const std::string& b) {
  return static_cast<int>(::syscall(SYS_renameat, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str()));
}
void raw_unlink(const std::string& p, int flags = 0) {
  ::syscall(SYS_unlinkat, AT_FDCWD, p.c_str(), flags);
}
// A second name for a file that is about to lose its own. Backups lie beside the watched folder.
std::string back_up(const std::string& path) {
  auto& d = disk();
  if (d.fault != Fault::kPowerCut) return "";
  std::string copy = d.root + ".lost-" + std::to_string(++d.backups);
  return ::syscall(SYS_linkat, AT_FDCWD, path.c_str(), AT_FDCWD, copy.c_str(), 0) == 0 ? copy : "";
}

// What a disk without power keeps: only what was synced.
void lose_power() {
  auto& d = disk();
  for (const auto& [fd, file] : d.files)
    if (file.dirty && !file.folder) ::syscall(SYS_ftruncate, fd, file.synced);
  for (auto it = d.unsynced.rbegin(); it != d.unsynced.rend(); ++it) {
    if (it->kind == NameChange::kRenamed) {
      raw_rename(it->to, it->from);
      if (!it->backup.empty()) raw_rename(it->backup, it->to);
    }
    if (it->kind == NameChange::kRemoved && !it->backup.empty()) raw_rename(it->backup, it->from);
    if (it->kind == NameChange::kCreated) raw_unlink(it->from);
    if (it->kind == NameChange::kMadeFolder) raw_unlink(it->from, AT_REMOVEDIR);
  }
}

[[noreturn]] void crash() {
  ::syscall(SYS_exit_group, kCrashed);
  __builtin_unreachable();
}

enum class Plan { kDo, kFail, kHalf };
// Counts a call and says what is to become of it; errno is set for kFail.
Plan plan(const char* call, const std::string& path, bool is_write) {
  auto& d = disk();
  if (d.out_of_space && is_write) {
    errno = ENOSPC;
    return Plan::kFail;
  }
  ++d.count;
  if (d.fault == Fault::kNone || d.count != d.at) return Plan::kDo;
  d.struck = true;
  d.what = std::string(call) + " " + path.substr(std::min(path.size(), d.root.size()));
  switch (d.fault) {
    case Fault::kNoSpace:
      errno = ENOSPC;
      return Plan::kFail;
    case Fault::kInputOutput:
      errno = EIO;
      return Plan::kFail;
    case Fault::kShortWrite:
      if (is_write) {
        d.out_of_space = true;
        return Plan::kHalf;
      }
      errno = ENOSPC;
      return Plan::kFail;
    case Fault::kCrashBefore:
      crash();
    default:
      return Plan::kDo;
  }
}
void after_call() {
  auto& d = disk();
  if (!d.struck || d.count != d.at) return;
  if (d.fault == Fault::kPowerCut) lose_power();
  if (d.fault == Fault::kPowerCut || d.fault == Fault::kCrashAfter) crash();
}

template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

int open_file(const char* path, int flags, mode_t mode) {
  static const auto next = real<int (*)(const char*, int, ...)>("open");
  auto& d = disk();
  const std::string full = absolute(path);
  if (!ours(full)) return next(path, flags, mode);
  const std::lock_guard hold(d.mutex);
  struct stat info {};
  const bool is_there = ::lstat(full.c_str(), &info) == 0;
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if ((flags & O_CREAT) && !(flags & O_NOFOLLOW)) d.followed += full.substr(d.root.size()) + " ";
  if (writes && !is_there && plan("create", full, false) == Plan::kFail) return -1;
  const int fd = next(path, flags, mode);
  if (fd < 0) return fd;
  const bool folder = is_there && S_ISDIR(info.st_mode);
  if (writes || folder) d.files[fd] = {.path = full, .synced = is_there ? info.st_size : 0, .folder = folder};
  if (writes && !is_there) {
    d.unsynced.push_back({NameChange::kCreated, parent(full), full, "", ""});
    after_call();
  }
  return fd;
}

ssize_t write_file(int fd, const void* data, size_t size) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  auto& d = disk();
  if (d.root.empty()) return next(fd, data, size);
  const std::lock_guard hold(d.mutex);
  const auto it = d.files.find(fd);
  if (it == d.files.end()) return next(fd, data, size);
  const auto p = plan("write", it->second.path, true);
  if (p == Plan::kFail) return -1;
  it->second.dirty = true;
  const ssize_t n = next(fd, data, p == Plan::kHalf && size > 1 ? size / 2 : size);
  after_call();
  return n;
}

int sync_file(int fd, const char* call) {
  static const auto next = real<int (*)(int)>("fsync");
  auto& d = disk();
  if (d.root.empty()) return next(fd);
  const std::lock_guard hold(d.mutex);
  const auto it = d.files.find(fd);
  if (it == d.files.end()) return next(fd);
  if (plan(call, it->second.path, false) == Plan::kFail) return -1;
  // Nothing has to reach a real disk here: the table remembers what is safe.
  struct stat info {};
  ::fstat(fd, &info);
  it->second.synced = info.st_size;
  it->second.dirty = false;
  if (it->second.folder) {
    for (const auto& change : d.unsynced)
      if (change.folder == it->second.path && !change.backup.empty()) raw_unlink(change.backup);
    std::erase_if(d.unsynced, [&](const NameChange& c) { return c.folder == it->second.path; });
  }
  after_call();
  return 0;
}

int remove_name(const char* path, const char* call) {
  static const auto next = real<int (*)(const char*)>("unlink");
  auto& d = disk();
  const std::string full = absolute(path);
  if (!ours(full)) return next(path);
  const std::lock_guard hold(d.mutex);
  struct stat info {};
  if (::lstat(full.c_str(), &info) != 0) return next(path);
  if (plan(call, full, false) == Plan::kFail) return -1;
  const auto backup = back_up(full);
  const int rc = next(path);
  if (rc == 0) d.unsynced.push_back({NameChange::kRemoved, parent(full), full, "", backup});
  after_call();
  return rc;
}

}  // namespace

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "none";
    case Fault::kNoSpace:
      return "no space";
    case Fault::kInputOutput:
      return "input/output error";
    case Fault::kShortWrite:
      return "short write";
    case Fault::kCrashBefore:
      return "crash before";
    case Fault::kCrashAfter:
      return "crash after";
    case Fault::kPowerCut:
      return "power cut";
  }
  return "?";
}

void arm(const std::filesystem::path& folder, Fault fault, int64_t n) {
  auto& d = disk();
  const std::lock_guard hold(d.mutex);
  d.root = std::filesystem::absolute(folder).string();
  d.fault = fault;
  d.at = n;
  d.count = 0;
  d.struck = d.out_of_space = false;
}
void free_space() {
  const std::lock_guard hold(disk().mutex);
  disk().out_of_space = false;
}
int64_t calls() {
  return disk().count;
}
std::string followed() {
  return disk().followed;
}
bool struck() {
  return disk().struck;
}
std::string struck_call() {
  return disk().what;
}

}  // namespace ebclr::testing

// libc's names, first in the line of those who answer to them.
// Visible, whatever the flags say: the calls of libstdc++ must come here too.
#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = va_arg(args, mode_t);
  va_end(args);
  return ebclr::testing::open_file(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = va_arg(args, mode_t);
  va_end(args);
  return ebclr::testing::open_file(path, flags, mode);
}
ssize_t write(int fd, const void* data, size_t size) {
  return ebclr::testing::write_file(fd, data, size);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t n = ebclr::testing::write_file(fd, parts[i].iov_base, parts[i].iov_len);
    if (n < 0) return all > 0 ? all : n;
    all += n;
    if (static_cast<size_t>(n) < parts[i].iov_len) break;
  }
  return all;
}
int fsync(int fd) {
  return ebclr::testing::sync_file(fd, "sync");
}
int fdatasync(int fd) {
  return ebclr::testing::sync_file(fd, "sync");
}
int close(int fd) {
  using namespace ebclr::testing;
  static const auto next = real<int (*)(int)>("close");
  auto& d = disk();
  if (d.root.empty()) return next(fd);
  const std::lock_guard hold(d.mutex);
  const auto it = d.files.find(fd);
  // A closed file may still be dirty: it stays in the table under a name of its own.
  if (it != d.files.end() && it->second.dirty && d.fault == Fault::kPowerCut) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 500);
    if (copy >= 0) d.files[copy] = it->second;
  }
  d.files.erase(fd);
  return next(fd);
}
int rename(const char* from, const char* to) {
  using namespace ebclr::testing;
  static const auto next = real<int (*)(const char*, const char*)>("rename");
  auto& d = disk();
  const std::string a = absolute(from), b = absolute(to);
  if (!ours(b)) return next(from, to);
  const std::lock_guard hold(d.mutex);
  if (plan("rename", b, false) == Plan::kFail) return -1;
  const auto backup = back_up(b);
  const int rc = next(from, to);
  if (rc == 0) d.unsynced.push_back({NameChange::kRenamed, parent(b), a, b, backup});
  after_call();
  return rc;
}
int unlink(const char* path) {
  return ebclr::testing::remove_name(path, "unlink");
}
int remove(const char* path) {
  struct stat info {};
  if (::lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) return ::rmdir(path);
  return ebclr::testing::remove_name(path, "remove");
}
int mkdir(const char* path, mode_t mode) {
  using namespace ebclr::testing;
  static const auto next = real<int (*)(const char*, mode_t)>("mkdir");
  auto& d = disk();
  const std::string full = absolute(path);
  if (!ours(full)) return next(path, mode);
  const std::lock_guard hold(d.mutex);
  struct stat info {};
  if (::lstat(full.c_str(), &info) == 0) return next(path, mode);
  if (plan("mkdir", full, false) == Plan::kFail) return -1;
  const int rc = next(path, mode);
  if (rc == 0) d.unsynced.push_back({NameChange::kMadeFolder, parent(full), full, "", ""});
  after_call();
  return rc;
}
int ftruncate(int fd, off_t length) {
  using namespace ebclr::testing;
  static const auto next = real<int (*)(int, off_t)>("ftruncate");
  auto& d = disk();
  if (d.root.empty()) return next(fd, length);
  const std::lock_guard hold(d.mutex);
  const auto it = d.files.find(fd);
  if (it == d.files.end()) return next(fd, length);
  if (plan("truncate", it->second.path, false) == Plan::kFail) return -1;
  it->second.synced = std::min(it->second.synced, length);
  const int rc = next(fd, length);
  after_call();
  return rc;
}

}  // extern "C"
#pragma GCC visibility pop
