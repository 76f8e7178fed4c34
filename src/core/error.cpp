#include "core/error.h"

#include <fmt/format.h>

namespace ebclr::core {

Error::Error(ExitCode code, std::string_view component, std::string_view message)
    : std::runtime_error(fmt::format("[{}] {}", component, message)), code_(code) {}

void usage_error(std::string_view component, std::string_view message) {
  throw Error(ExitCode::kUsage, component, message);
}

void run_error(std::string_view component, std::string_view message) {
  throw Error(ExitCode::kRunFailed, component, message);
}

}  // namespace ebclr::core
