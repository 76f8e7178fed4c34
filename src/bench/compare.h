#pragma once
// A regression guard by hand: rows of two measurements side by side.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ebclr::bench {

/// One row that both measurements have.
struct Comparison {
  std::string row;    ///< "step ebclr batch 64 width 64 32x3 avx512"
  double before = 0;  ///< native, ms per image, best
  double now = 0;
  double machine = 1;  ///< how much slower libtorch itself was this time
  double noise = 0;    ///< relative: the larger distance of a median from its best, at least 5 %
  /// Slower than before by so much, the machine's own share taken out.
  double change() const { return now / (before * machine) - 1; }
  bool slower() const { return change() > noise; }
  bool faster() const { return change() < -noise; }
};

/// Rows of `now` that `before` has too, both as bench::to_json makes them. libtorch, measured in both, says
/// how much of a difference is the machine's.
std::vector<Comparison> compare(const nlohmann::json& before, const nlohmann::json& now);

/// Rows that `bench --json` wrote.
nlohmann::json read_results(const std::string& path);
/// Whether a path is something to run.
bool is_program(const std::string& path);
/// Results of several turns with the same options as one: of each row the best of the bests and the median of
/// the medians.
nlohmann::json merge(const std::vector<nlohmann::json>& turns);
/// What a build's `bench step --json` with these options says.
nlohmann::json results_of(const std::string& program, const std::vector<std::string>& options);

}  // namespace ebclr::bench
