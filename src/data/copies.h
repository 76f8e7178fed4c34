#pragma once
// Files that hold the same bytes, found without reading most of the others.

#include <filesystem>
#include <vector>

#include "data/walk.h"

namespace ebclr::data {

/// For each file the number of the first one with the same bytes: its own where it is that one, is like no
/// other, or cannot be read. `threads` 0: as many as there are cores.
std::vector<size_t> first_of_equals(const std::filesystem::path& folder, const std::vector<FoundFile>& files,
                                    int threads);

}  // namespace ebclr::data
