#include "browse/classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "data/csv.h"

namespace ebclr::browse {

Classes parse_classes(std::string_view csv, const std::string& where, int64_t rows,
                      const std::function<int64_t(const std::string&)>& row_of) {
  const auto lines = data::parse_csv(csv, where);
  const auto head = lines.empty() ? std::vector<std::string>{} : lines.front().fields;
  const auto column = [&](const char* name) {
    const auto it = std::find(head.begin(), head.end(), name);
    if (it == head.end())
      core::usage_error("browse",
                        fmt::format("{}: no column '{}'; it is not a file of ebclr classify", where, name));
    return static_cast<size_t>(it - head.begin());
  };
  const auto path = column("path"), predicted = column("predicted");
  Classes c;
  c.of.assign(static_cast<size_t>(rows), -1);
  std::map<std::string, int> number;
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto& f = lines[i].fields;
    const auto row = f.size() == head.size() ? row_of(f[path]) : -1;
    if (row < 0) continue;
    const auto [it, fresh] = number.emplace(f[predicted], static_cast<int>(c.names.size()));
    if (fresh) c.names.push_back(f[predicted]);
    c.of[static_cast<size_t>(row)] = it->second;
  }
  return c;
}

}  // namespace ebclr::browse
