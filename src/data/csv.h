#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::data {

/// A row of a CSV file and the line on which it begins.
struct CsvRow {
  int64_t line = 1;
  std::vector<std::string> fields;
};

/// Rows of CSV text: fields may be quoted and then hold commas, line breaks and doubled quotes; empty lines
/// and a byte order mark are skipped. Throws Error naming `where` and the line.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& where);

}  // namespace ebclr::data
