#include "bench/compare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/json.h"

namespace ebclr::bench {
namespace {

/// What makes two rows the same measurement.
std::string name_of(const nlohmann::json& row) {
  using core::whole_number;
  return fmt::format(
      "{} {} {} batch {} width {} {}x{} {} chains {} T {}, {} threads {}", row.at("bench").get<std::string>(),
      row.at("method").get<std::string>(), row.at("batch_norm").get<bool>() ? "norm" : "plain",
      whole_number(row.at("batch")), whole_number(row.at("width")), whole_number(row.at("size")),
      whole_number(row.at("channels")), row.value("stem", std::string("cifar")), row.value("chains", 0.0),
      row.contains("sgld_steps") ? whole_number(row["sgld_steps"]) : 10, whole_number(row.at("threads")),
      row.at("instructions").get<std::string>());
}

double best(const nlohmann::json& row, const char* who) {
  return row.at("ms_per_image").at(who).get<double>();
}
double spread(const nlohmann::json& row, const char* who) {
  return row.at("ms_per_image_median").at(who).get<double>() / best(row, who) - 1;
}

}  // namespace

std::vector<Comparison> compare(const nlohmann::json& before, const nlohmann::json& now) {
  if (!before.is_array()) core::usage_error("bench", "the file to compare with is not a list of results");
  std::vector<Comparison> list;
  try {
    for (const auto& row : now) {
      const auto same = std::find_if(before.begin(), before.end(),
                                     [&](const auto& other) { return name_of(other) == name_of(row); });
      if (same == before.end()) continue;
      list.push_back({.row = name_of(row),
                      .before = best(*same, "native"),
                      .now = best(row, "native"),
                      .machine = best(row, "lean") / best(*same, "lean"),
                      .noise = std::max({0.05, spread(*same, "native"), spread(row, "native")})});
    }
  } catch (const nlohmann::json::exception& e) {
    core::usage_error("bench",
                      fmt::format("the file to compare with is not what bench --json writes ({})", e.what()));
  }
  return list;
}

nlohmann::json merge(const std::vector<nlohmann::json>& turns) {
  nlohmann::json rows = turns.front();
  try {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const char* who : {"released", "lean", "native"}) {
        std::vector<double> bests, medians;
        for (const auto& turn : turns) {
          bests.push_back(best(turn.at(i), who));
          medians.push_back(turn.at(i).at("ms_per_image_median").at(who).get<double>());
        }
        std::sort(medians.begin(), medians.end());
        rows[i]["ms_per_image"][who] = *std::min_element(bests.begin(), bests.end());
        rows[i]["ms_per_image_median"][who] = medians[medians.size() / 2];
      }
    }
  } catch (const nlohmann::json::exception& e) {
    core::run_error("bench", fmt::format("the turns of a build have different rows ({})", e.what()));
  }
  return rows;
}

nlohmann::json read_results(const std::string& path) {
  auto rows = core::parse_json(core::read_text(path, "bench"));
  if (!rows.is_array())
    core::usage_error("bench",
                      fmt::format("{} is not a list of results; expected what bench --json wrote, or "
                                  "another build of ebclr",
                                  path));
  return rows;
}

bool is_program(const std::string& path) {
  return access(path.c_str(), X_OK) == 0;
}

nlohmann::json results_of(const std::string& program, const std::vector<std::string>& options) {
  const auto quoted = [](const std::string& word) {
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
  };
  std::string command = quoted(program) + " bench step --json";
  for (const std::string& option : options) (command += ' ') += quoted(option);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) core::run_error("bench", fmt::format("cannot run {}", program));
  std::string text;
  char part[4096];
  for (size_t n = 0; (n = fread(part, 1, sizeof part, pipe.get())) > 0;) text.append(part, n);
  auto rows = core::parse_json(text);
  if (!rows.is_array())
    core::run_error("bench",
                    fmt::format("{} bench step --json gave no results; is it a build of ebclr?", program));
  return rows;
}

}  // namespace ebclr::bench
