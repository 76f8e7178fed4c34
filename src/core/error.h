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
  Error(ExitCode code, std::string_view component, std::string_view message);

  /// Exit code that `main` returns for it.
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The caller gave something wrong: arguments, configuration, input files (exit code 2).
[[noreturn]] void usage_error(std::string_view component, std::string_view message);

/// The input was fine and the work still failed: full disk, divergence, network (exit code 1).
[[noreturn]] void run_error(std::string_view component, std::string_view message);

/// Does a library's message say that memory ran out?
bool says_out_of_memory(std::string_view text);

}  // namespace ebclr::core
