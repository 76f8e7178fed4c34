// Whatever is created is created as if a stranger had prepared its name: a function before libc's open sees
// the flags of every call.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdarg>
#include <string>
#include <vector>

#include "core/file_lock.h"
#include "core/files.h"
#include "temp_dir.h"

namespace ebclr::core {
namespace {

struct Creation {
  std::string path;
  int flags = 0;
};
std::vector<Creation>* creations = nullptr;  // of the test that looks

}  // namespace
}  // namespace ebclr::core

#pragma GCC visibility push(default)
extern "C" int open(const char* path, int flags, ...) {
  using ebclr::core::creations;
  static const auto next = reinterpret_cast<int (*)(const char*, int, ...)>(::dlsym(RTLD_NEXT, "open"));
  va_list args;
  va_start(args, flags);
  const mode_t mode = va_arg(args, mode_t);
  va_end(args);
  if (creations != nullptr && (flags & O_CREAT) != 0) creations->push_back({path, flags});
  return next(path, flags, mode);
}
#pragma GCC visibility pop

namespace ebclr::core {
namespace {

TEST(Created, NothingFollowsALinkAndTemporariesAreNew) {
  testing::TempDir dir;
  std::vector<Creation> seen;
  creations = &seen;
  write_atomically(dir / "a", "x", "test");
  AppendFile(dir / "log", "test").append("line\n");
  FileLock::try_take(dir / "lock", "test");
  creations = nullptr;
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& c : seen) EXPECT_TRUE(c.flags & O_NOFOLLOW) << c.path;
  EXPECT_TRUE(seen[0].flags & O_EXCL) << "a temporary may have been there already: " << seen[0].path;
}

}  // namespace
}  // namespace ebclr::core
