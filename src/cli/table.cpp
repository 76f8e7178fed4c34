#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ebclr::cli {

void print_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  for (size_t l = 0; l < lines.size(); ++l) {
    std::string text;
    for (size_t c = 0; c < lines[l].size(); ++c) {
      text += c == 0 ? fmt::format("{:<{}}", lines[l][c], widths[c])
                     : fmt::format("  {:>{}}", lines[l][c], widths[c]);
    }
    fmt::print("{}\n", text);
    if (l == 0) fmt::print("{}\n", std::string(text.size(), '-'));
  }
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f}", 100 * share) : "-";
}

}  // namespace ebclr::cli
