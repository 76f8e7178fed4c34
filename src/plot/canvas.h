#pragma once
// Drawing surface of the plot room: coordinates in points, two pixels each, everything filled with smooth
// edges.

#include <array>
#include <string>
#include <vector>

#include "image/pixels.h"
#include "plot/typeface.h"

namespace ebclr::plot {

using Rgb = std::array<uint8_t, 3>;

inline constexpr Rgb kWhite{255, 255, 255}, kInk{38, 42, 48}, kSoftInk{96, 102, 112},
    kGridLine{229, 232, 236}, kFrame{176, 182, 190}, kEmpty{246, 247, 249};

/// Where a text's anchor point sits in it.
enum class Align { kLeft, kCentre, kRight };

/// Shapes and text on a white ground; (0, 0) is the top left corner.
class Canvas {
 public:
  Canvas(double width, double height);

  double width() const { return width_; }
  double height() const { return height_; }

  void line(Point a, Point b, Rgb colour, double thickness = 1);
  /// Connected lines; dashed ones keep their rhythm across corners.
  void polyline(const std::vector<Point>& points, Rgb colour, double thickness, bool dashed = false);
  /// Filled polygon, blended with what is there.
  void polygon(const std::vector<Point>& points, Rgb colour, double opacity = 1);
  void rectangle(Point top_left, Point bottom_right, Rgb colour, double opacity = 1);
  void frame(Point top_left, Point bottom_right, Rgb colour, double thickness = 1);
  void disc(Point centre, double radius, Rgb colour);
  /// Text with its vertical middle at `at`; `size` is the height of a capital letter in points.
  void text(const std::string& text, Point at, double size, Align align, Rgb colour = kInk,
            bool bold = false);
  /// Text that reads upwards, its middle at `at`.
  void text_upwards(const std::string& text, Point at, double size, Rgb colour = kInk);
  /// A picture with its top left corner at `at`, pixel by pixel (two per point).
  void picture(const image::Pixels& picture, Point at);

  /// Width of a text in points.
  static double text_width(const std::string& text, double size, bool bold = false);
  /// The text, shortened with an ellipsis to fit a width.
  static std::string fit(const std::string& text, double width, double size, bool bold = false);
  /// The text shortened in the middle, for file names, whose ends differ.
  static std::string fit_middle(const std::string& text, double width, double size);
  /// The text in lines that fit a width, broken at spaces.
  static std::vector<std::string> wrap(const std::string& text, double width, double size, bool bold = false);

  /// The finished picture, two pixels per point.
  image::Pixels finish() const { return pixels_; }

 private:
  void fill(const std::vector<std::vector<Point>>& polygons, Rgb colour, double opacity = 1);
  void blend(int y, int x, int length, uint8_t coverage, Rgb colour, double opacity);

  double width_, height_;
  image::Pixels pixels_;
};

}  // namespace ebclr::plot
