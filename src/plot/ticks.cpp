#include "plot/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ebclr::plot {

double Axis::place(double value) const {
  if (log) return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  return (value - low) / (high - low);
}

Axis make_axis(double low, double high, int wanted, bool log, bool snap) {
  Axis axis;
  axis.log = log;
  if (log) {
    int first = static_cast<int>(std::floor(std::log10(low) + 1e-9));
    int last = static_cast<int>(std::ceil(std::log10(high) - 1e-9));
    if (last <= first) last = first + 1;
    axis.low = std::pow(10, first);
    axis.high = std::pow(10, last);
    const int stride = std::max(1, (last - first + wanted - 1) / wanted);
    for (int e = first; e <= last; e += stride) axis.ticks.push_back(std::pow(10, e));
    return axis;
  }
  if (!(high > low)) {
    const double pad = std::max(std::abs(low) * 0.1, 0.5);
    low -= pad;
    high += pad;
  }
  const double raw = (high - low) / wanted, magnitude = std::pow(10, std::floor(std::log10(raw)));
  const double fraction = raw / magnitude;
  const double step = magnitude * (fraction <= 1     ? 1
                                   : fraction <= 2   ? 2
                                   : fraction <= 2.5 ? 2.5
                                   : fraction <= 5   ? 5
                                                     : 10);
  axis.low = snap ? std::floor(low / step + 1e-9) * step : low;
  axis.high = snap ? std::ceil(high / step - 1e-9) * step : high;
  for (double k = std::ceil(axis.low / step - 1e-9); k * step <= axis.high + 1e-9 * step; k += 1) {
    axis.ticks.push_back(k == 0 ? 0 : k * step);
  }
  return axis;
}

std::string tick_label(double value, double step) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e6 || size < 1e-3) return fmt::format("{:.2g}", value);
  const double unit = std::max(step, 1e-9);
  int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(unit) + 1e-9)), 0, 6);
  // 0.25-like steps need one digit more than their magnitude says.
  if (std::abs(std::remainder(unit, std::pow(10, -decimals))) > 1e-6 * unit) ++decimals;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace ebclr::plot
