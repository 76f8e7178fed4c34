#pragma once
// Charts as HTML: an SVG for the shapes, which stretches, and text beside it, which does not. Thus a chart
// stays readable on a phone without a line of script.

#include <string>
#include <vector>

#include "report/page.h"

namespace ebclr::report {

/// A point of a line, with its band when it has one.
struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  ///< equal to y without a band
};

/// At most about 4 * columns points of a stretch in order of x: of each column the first, the last, the
/// lowest and the highest, so that no spike gets lost. Short stretches are returned as they are.
std::vector<ChartPoint> thin(const std::vector<ChartPoint>& stretch, double x_low, double x_high,
                             int columns);

/// The figure; throws when counts of a series differ.
std::string chart_html(const Chart& chart);
/// The figure of a map of points.
std::string map_html(const PointMap& map);

/// "12.5k", "3M", "0.25": a number for an axis whose labels are `step` apart.
std::string axis_label(double value, double step);
/// JSON that may stand inside a script element.
std::string script_json(const std::string& json);
/// Base64 of bytes, for data: addresses.
std::string base64(const std::byte* bytes, size_t count);
/// A picture as a data: address.
std::string data_address(const std::vector<std::byte>& image);
/// Index of the colour of the k-th series; there are ten.
inline int colour_index(int64_t k) {
  return static_cast<int>(k % 10);
}

}  // namespace ebclr::report
