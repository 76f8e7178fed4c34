#pragma once
// What a run would go on from, for tests that look at it.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "run/checkpoint.h"

namespace ebclr::testing {

/// The newest checkpoint that can be read; why newer ones cannot is noted.
inline std::optional<run::Snapshot> read_newest(const std::filesystem::path& folder,
                                                std::vector<std::string>& notes) {
  const auto files = run::list_checkpoints(folder);
  for (auto it = files.rbegin(); it != files.rend(); ++it) {
    try {
      return run::read_checkpoint(*it, true);
    } catch (const core::Error& e) {
      notes.emplace_back(e.what());
    }
  }
  return std::nullopt;
}

}  // namespace ebclr::testing
