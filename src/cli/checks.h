#pragma once
// Checks of numbers on the command line.

#include <CLI/CLI.hpp>
#include <string>

namespace ebclr::cli {

/// Instead of CLI::NonNegativeNumber, whose errors name an upper end of 309 digits.
inline const CLI::Validator kNotNegative(
    [](std::string& text) {
      return text.starts_with('-') ? text + " is negative; 0 is the least" : std::string();
    },
    "NONNEGATIVE");

}  // namespace ebclr::cli
