#pragma once
// Running another program, without a shell.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebclr::data {

/// Runs words[0] (found on PATH) in `folder` with no input and its output in the file `log` (no link);
/// returns its exit code, -1 when a signal ended it, or nothing when it is not installed, had to be stopped
/// after `patience`, or the system does not say how it ended (SIGCHLD is ignored).
std::optional<int> run_program(const std::vector<std::string>& words, const std::filesystem::path& folder,
                               const std::filesystem::path& log, std::chrono::seconds patience);

}  // namespace ebclr::data
