#pragma once
// Predictions of `ebclr classify`, by which the map is coloured.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::browse {

struct Classes {
  std::vector<std::string> names;
  std::vector<int> of;  ///< by row of the index, -1: none
};

/// From CSV whose head names the columns path and predicted. `row_of` finds an image among the `rows` of the
/// index, -1: it is not there. Throws Error naming `where`.
Classes parse_classes(std::string_view csv, const std::string& where, int64_t rows,
                      const std::function<int64_t(const std::string&)>& row_of);

}  // namespace ebclr::browse
