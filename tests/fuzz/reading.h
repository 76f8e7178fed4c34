#pragma once
// What the targets share.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "targets.h"

namespace ebclr::fuzz {

using Bytes = std::span<const std::byte>;

inline std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// A folder of this process for readers that want files; in memory where there is such a place.
const std::filesystem::path& scratch();
/// These bytes as a file in it.
std::filesystem::path file_of(Bytes bytes, const std::string& name);

/// A part that is refused does not keep the next from being tried.
template <class F>
void attempt(F&& use) {
  try {
    use();
  } catch (const core::Error&) {
  }
}

/// A stored zip, all that the unpickler needs around its program: see tests/run/torch_file_test.cpp.
std::string zip_around(const std::vector<std::pair<std::string, std::string>>& entries);

/// What lies in the folders of runs and studies.
std::vector<Target> run_targets();

}  // namespace ebclr::fuzz
