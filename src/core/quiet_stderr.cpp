#include "core/quiet_stderr.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace ebclr::core {
namespace {

// The descriptor is the process's, hence so is this count.
struct StderrState {
  std::mutex mutex;
  int users = 0;
  int saved = -1;  // the real standard error while it is hidden
};

StderrState& stderr_state() {
  static StderrState state;
  return state;
}

}  // namespace

QuietStderr::QuietStderr() {
  auto& state = stderr_state();
  const std::lock_guard lock(state.mutex);
  if (state.users++ > 0) return;
  std::fflush(stderr);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;  // then it stays noisy: no reason to fail
  state.saved = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  if (state.saved >= 0) ::dup2(nowhere, STDERR_FILENO);
  ::close(nowhere);
}

QuietStderr::~QuietStderr() {
  auto& state = stderr_state();
  const std::lock_guard lock(state.mutex);
  if (--state.users > 0 || state.saved < 0) return;
  std::fflush(stderr);
  ::dup2(state.saved, STDERR_FILENO);
  ::close(state.saved);
  state.saved = -1;
}

}  // namespace ebclr::core
