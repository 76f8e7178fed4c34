#pragma once

namespace ebclr::core {

/// While one of these lives, what the process writes to standard error goes nowhere. For calls into libraries
/// that print about the user's files and cannot be told not to (dav1d below libavif). May be
/// nested and used from several threads; standard error is back when the last one is gone.
class QuietStderr {
 public:
  QuietStderr();
  ~QuietStderr();
  QuietStderr(const QuietStderr&) = delete;
  QuietStderr& operator=(const QuietStderr&) = delete;
};

}  // namespace ebclr::core
