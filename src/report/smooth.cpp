#include "report/smooth.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ebclr::report {
namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
}

plot::Series smooth(const std::string& name, const run::MetricSeries& series, size_t groups) {
  plot::Series out{.name = name};
  const size_t n = series.value.size();
  if (n <= 2 * groups) {
    out.x = series.epoch;
    out.y = series.value;
    out.markers = n <= 30;
    return out;
  }
  const size_t group = (n + groups - 1) / groups;
  for (size_t begin = 0; begin < n;) {
    double x = 0, y = 0, low = INFINITY, high = -INFINITY;
    size_t count = 0, i = begin;
    for (; i < n && i < begin + group; ++i) {
      if (!std::isfinite(series.value[i])) break;
      x += series.epoch[i], y += series.value[i], ++count;
      low = std::min(low, series.value[i]);
      high = std::max(high, series.value[i]);
    }
    if (count > 0) {
      out.x.push_back(x / static_cast<double>(count)), out.y.push_back(y / static_cast<double>(count));
      out.low.push_back(low), out.high.push_back(high);
    }
    if (i < n && i < begin + group) {  // a gap in the data stays a gap
      out.x.push_back(series.epoch[i]), out.y.push_back(kNan);
      out.low.push_back(kNan), out.high.push_back(kNan);
      ++i;
    }
    begin = i;
  }
  return out;
}

}  // namespace ebclr::report
