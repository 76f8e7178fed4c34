#pragma once
// Everything that reads a file somebody else may have made. A target gets any bytes and must come back: with
// a value, or with a core::Error of one line. Anything else (another exception, a signal, a sanitizer's
// report) is a defect.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ebclr::fuzz {

struct Target {
  std::string name;                          ///< also the name of its folder in tests/fuzz/corpus
  void (*read)(std::span<const std::byte>);  ///< throws what the reader throws
};

/// All of them.
const std::vector<Target>& targets();

/// Runs one; returns what is wrong with how it ended, or an empty text.
std::string run(const Target& target, std::span<const std::byte> bytes);

}  // namespace ebclr::fuzz
