#include "core/error.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ebclr::core {

Error::Error(ExitCode code, std::string_view component, std::string_view message)
    : std::runtime_error(one_line(fmt::format("[{}] {}", component, message))), code_(code) {}

void usage_error(std::string_view component, std::string_view message) {
  throw Error(ExitCode::kUsage, component, message);
}

void run_error(std::string_view component, std::string_view message) {
  throw Error(ExitCode::kRunFailed, component, message);
}

bool says_out_of_memory(std::string_view text) {
  for (const std::string_view words : {"not enough memory", "out of memory", "can't allocate memory",
                                       "Cannot allocate memory", "OutOfMemoryError", "bad_alloc"})
    if (text.find(words) != std::string_view::npos) return true;
  return false;
}

}  // namespace ebclr::core
