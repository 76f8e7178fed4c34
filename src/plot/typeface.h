#pragma once
// The letters of the pictures as outlines, and a fill of outlines with smooth edges.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ebclr::plot {

struct Point {
  double x = 0, y = 0;
};

/// Told `length` pixels of a row from x on, covered by `coverage` of 255.
using SpanSink = std::function<void(int y, int x, int length, uint8_t coverage)>;

/// FreeType with the bundled fonts. Not thread-safe: one per thread.
class Typeface {
 public:
  Typeface();
  ~Typeface();
  Typeface(const Typeface&) = delete;
  Typeface& operator=(const Typeface&) = delete;

  /// Width of UTF-8 text whose capitals are `size` high.
  double width(const std::string& text, double size, bool bold);
  /// Fills text with its left end at `at`, on the base line; `upwards` turns it a quarter to the left.
  /// Coordinates in pixels, clipped to width x height.
  void fill_text(const std::string& text, Point at, double size, bool bold, bool upwards, int width,
                 int height, const SpanSink& sink);
  /// Fills the union of polygons, clipped to width x height.
  void fill(const std::vector<std::vector<Point>>& polygons, int width, int height, const SpanSink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebclr::plot
