#pragma once
// Errors that reach a user: one line, with the component, what was wrong and what to do.

#include <stdexcept>
#include <string>
#include <string_view>

namespace ebclr::core {

/// Exit codes of the program.
enum class ExitCode { kOk = 0, kRunFailed = 1, kUsage = 2, kInterrupted = 130 };

/// The one exception type of the project; what() is a complete line for the user.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string_view component, std::string_view message)
      : std::runtime_error("[" + std::string(component) + "] " + std::string(message)), code_(code) {}

  /// Exit code that `main` returns for it.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The caller gave something wrong: arguments, configuration, input files (exit code 2).
[[noreturn]] inline void usage_error(std::string_view component, std::string_view message) {
  throw Error(ExitCode::kUsage, component, message);
}

/// The input was fine and the work still failed: full disk, divergence, network (exit code 1).
[[noreturn]] inline void run_error(std::string_view component, std::string_view message) {
  throw Error(ExitCode::kRunFailed, component, message);
}

}  // namespace ebclr::core
