#include "data/csv.h"

#include <fmt/format.h>

#include "core/error.h"

namespace ebclr::data {

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& where) {
  constexpr std::string_view kComponent = "data.csv";
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<CsvRow> rows;
  CsvRow row{.line = 1, .fields = {""}};
  int64_t line = 1;
  bool quoted = false, was_quoted = false;
  const auto end_row = [&] {
    if (row.fields.size() > 1 || !row.fields[0].empty() || was_quoted) rows.push_back(std::move(row));
    row = {.line = line, .fields = {""}};
    was_quoted = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0')
      core::usage_error(kComponent,
                        fmt::format("{}: line {}: binary data; expected path,label", where, line));
    if (c == '\n') ++line;
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        row.fields.back() += text[++i];
      } else if (c == '"') {
        quoted = false;
      } else {
        row.fields.back() += c;
      }
    } else if (c == '"' && row.fields.back().empty()) {
      quoted = was_quoted = true;
    } else if (c == ',') {
      row.fields.emplace_back();
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r' || (i + 1 < text.size() && text[i + 1] != '\n')) {
      row.fields.back() += c;
    }
  }
  if (quoted)
    core::usage_error(kComponent, fmt::format("{}: line {}: a quote is not closed", where, row.line));
  end_row();
  return rows;
}

}  // namespace ebclr::data
