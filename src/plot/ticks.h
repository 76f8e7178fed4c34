#pragma once
// Round numbers for axes.

#include <string>
#include <vector>

namespace ebclr::plot {

/// An axis: ends of the visible range and where labels stand, in the data's own units.
struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;

  /// Place of a value between 0 (low) and 1 (high).
  double place(double value) const;
};

/// An axis that holds [low, high] with about `wanted` ticks at round numbers; `snap` widens the ends to
/// ticks.
Axis make_axis(double low, double high, int wanted, bool log, bool snap);

/// A short label: "0.25", "1200", "5e-04".
std::string tick_label(double value, double step);

}  // namespace ebclr::plot
