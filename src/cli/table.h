#pragma once

#include <string>
#include <vector>

namespace ebclr::cli {

/// Prints aligned columns; the first is left-aligned, the rest right-aligned. The first line is the heading.
void print_table(const std::vector<std::vector<std::string>>& lines);

/// A share as a percentage with two digits; "-" where it is not a number.
std::string percent(double share);

}  // namespace ebclr::cli
