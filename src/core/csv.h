#pragma once
// Lines of CSV after RFC 4180.

#include <string>
#include <string_view>
#include <vector>

namespace ebclr::core {

/// The text as one field: quoted where it holds a comma, a quote or a line break.
std::string csv_field(std::string_view text);
/// Fields joined by commas, with a line break at the end.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace ebclr::core
