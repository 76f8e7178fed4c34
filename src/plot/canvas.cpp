#include "plot/canvas.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace ebclr::plot {
namespace {

constexpr double kScale = 2;  // pixels per point

// Fonts are opened once per thread: a chart measures and draws some hundred texts.
Typeface& typeface() {
  thread_local Typeface face;
  return face;
}

// The four corners of a line of some thickness with square ends.
std::vector<Point> stroke(Point a, Point b, double thickness) {
  const double length = std::hypot(b.x - a.x, b.y - a.y), half = thickness / 2;
  const Point along =
      length > 0 ? Point{(b.x - a.x) / length * half, (b.y - a.y) / length * half} : Point{half, 0};
  const Point across{-along.y, along.x};
  // Half a thickness longer at both ends, so that bends have no gaps.
  const Point from{a.x - along.x, a.y - along.y}, to{b.x + along.x, b.y + along.y};
  return {{from.x + across.x, from.y + across.y},
          {to.x + across.x, to.y + across.y},
          {to.x - across.x, to.y - across.y},
          {from.x - across.x, from.y - across.y}};
}

// Ends of UTF-8 characters: a text is never cut inside one.
std::vector<size_t> ends(const std::string& text) {
  std::vector<size_t> out;
  for (size_t i = 1; i <= text.size(); ++i)
    if (i == text.size() || (static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) out.push_back(i);
  return out;
}

constexpr const char* kEllipsis = "\xE2\x80\xA6";

}  // namespace

Canvas::Canvas(double width, double height)
    : width_(width),
      height_(height),
      pixels_(std::max(1, static_cast<int>(std::lround(width * kScale))),
              std::max(1, static_cast<int>(std::lround(height * kScale))), 3) {
  std::fill(pixels_.data.begin(), pixels_.data.end(), uint8_t{255});
}

void Canvas::blend(int y, int x, int length, uint8_t coverage, Rgb colour, double opacity) {
  uint8_t* p = pixels_.row(y) + size_t{3} * static_cast<size_t>(x);
  const int weight = static_cast<int>(std::lround(coverage * opacity));
  for (int i = 0; i < length; ++i)
    for (int k = 0; k < 3; ++k, ++p)
      *p = static_cast<uint8_t>((colour[static_cast<size_t>(k)] * weight + *p * (255 - weight) + 127) / 255);
}

void Canvas::fill(const std::vector<std::vector<Point>>& polygons, Rgb colour, double opacity) {
  // FreeType takes 32,000 points at a time.
  for (size_t first = 0; first < polygons.size();) {
    std::vector<std::vector<Point>> some;
    size_t points = 0;
    while (first < polygons.size() && (some.empty() || points + polygons[first].size() < 30000)) {
      auto polygon = polygons[first++];
      for (auto& p : polygon) p = {p.x * kScale, p.y * kScale};
      points += polygon.size();
      some.push_back(std::move(polygon));
    }
    typeface().fill(some, pixels_.width, pixels_.height, [&](int y, int x, int length, uint8_t coverage) {
      blend(y, x, length, coverage, colour, opacity);
    });
  }
}

void Canvas::line(Point a, Point b, Rgb colour, double thickness) {
  fill({stroke(a, b, thickness)}, colour);
}

void Canvas::polyline(const std::vector<Point>& points, Rgb colour, double thickness, bool dashed) {
  constexpr double kDash = 6, kGap = 4;
  std::vector<std::vector<Point>> parts;
  double travelled = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1], b = points[i];
    const double length = std::hypot(b.x - a.x, b.y - a.y);
    if (!dashed) {
      if (length > 0) parts.push_back(stroke(a, b, thickness));
      continue;
    }
    for (double done = 0; done < length;) {
      const double phase = std::fmod(travelled + done, kDash + kGap);
      const bool ink = phase < kDash;
      const double step = std::min(length - done, std::max(1e-3, (ink ? kDash : kDash + kGap) - phase));
      if (ink) {
        const auto along = [&](double d) {
          return Point{a.x + (b.x - a.x) * d / length, a.y + (b.y - a.y) * d / length};
        };
        // The square ends would close the gaps: a dash is drawn shorter by them.
        const double end = std::min(thickness / 2, step / 2 - 1e-6);
        if (step > thickness) parts.push_back(stroke(along(done + end), along(done + step - end), thickness));
      }
      done += step;
    }
    travelled += length;
  }
  fill(parts, colour);
}

void Canvas::polygon(const std::vector<Point>& points, Rgb colour, double opacity) {
  if (points.size() >= 3) fill({points}, colour, opacity);
}

void Canvas::rectangle(Point a, Point b, Rgb colour, double opacity) {
  // On whole pixels: fields that touch leave no seam.
  const auto pixel = [](double v, int most) {
    return std::clamp(static_cast<int>(std::lround(v * kScale)), 0, most);
  };
  const int left = pixel(std::min(a.x, b.x), pixels_.width), right = pixel(std::max(a.x, b.x), pixels_.width);
  for (int y = pixel(std::min(a.y, b.y), pixels_.height); y < pixel(std::max(a.y, b.y), pixels_.height); ++y)
    if (right > left) blend(y, left, right - left, 255, colour, opacity);
}

void Canvas::frame(Point a, Point b, Rgb colour, double thickness) {
  fill({stroke(a, {b.x, a.y}, thickness), stroke({b.x, a.y}, b, thickness), stroke(b, {a.x, b.y}, thickness),
        stroke({a.x, b.y}, a, thickness)},
       colour);
}

void Canvas::disc(Point centre, double radius, Rgb colour) {
  std::vector<Point> circle;
  const int corners = std::clamp(static_cast<int>(radius * 8), 16, 128);
  for (int i = 0; i < corners; ++i) {
    const double angle = 2 * std::numbers::pi * i / corners;
    circle.push_back({centre.x + radius * std::cos(angle), centre.y + radius * std::sin(angle)});
  }
  fill({circle}, colour);
}

double Canvas::text_width(const std::string& text, double size, bool bold) {
  return typeface().width(text, size, bold);
}

std::string Canvas::fit(const std::string& text, double width, double size, bool bold) {
  if (text_width(text, size, bold) <= width) return text;
  const auto cuts = ends(text);
  for (size_t n = cuts.size(); n-- > 0;) {
    std::string shorter = text.substr(0, cuts[n]) + kEllipsis;
    if (text_width(shorter, size, bold) <= width) return shorter;
  }
  return "";
}

std::string Canvas::fit_middle(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  const auto cuts = ends(text);
  for (size_t keep = cuts.size(); keep-- > 2;) {
    const size_t head = keep / 2, tail = keep - head;
    std::string shorter =
        text.substr(0, cuts[head - 1]) + kEllipsis + text.substr(cuts[cuts.size() - 1 - tail]);
    if (text_width(shorter, size) <= width) return shorter;
  }
  return fit(text, width, size);
}

std::vector<std::string> Canvas::wrap(const std::string& text, double width, double size, bool bold) {
  std::vector<std::string> lines;
  std::string line;
  size_t start = 0;
  while (start < text.size()) {
    size_t end = text.find(' ', start);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(start, end - start);
    const std::string longer = line.empty() ? word : line + " " + word;
    if (!line.empty() && text_width(longer, size, bold) > width) {
      lines.push_back(line);
      line = word;
    } else {
      line = longer;
    }
    start = end + 1;
  }
  if (!line.empty()) lines.push_back(line);
  for (auto& l : lines) l = fit(l, width, size, bold);  // a single word may still be too long
  return lines;
}

void Canvas::text(const std::string& text, Point where, double size, Align align, Rgb colour, bool bold) {
  double x = where.x;
  if (align != Align::kLeft) x -= text_width(text, size, bold) / (align == Align::kCentre ? 2 : 1);
  typeface().fill_text(text, {x * kScale, (where.y + size / 2) * kScale}, size * kScale, bold, false,
                       pixels_.width, pixels_.height, [&](int y, int px, int length, uint8_t coverage) {
                         blend(y, px, length, coverage, colour, 1);
                       });
}

void Canvas::text_upwards(const std::string& text, Point where, double size, Rgb colour) {
  typeface().fill_text(
      text, {(where.x + size / 2) * kScale, (where.y + text_width(text, size) / 2) * kScale}, size * kScale,
      false, true, pixels_.width, pixels_.height,
      [&](int y, int x, int length, uint8_t coverage) { blend(y, x, length, coverage, colour, 1); });
}

void Canvas::picture(const image::Pixels& picture, Point at) {
  const int left = static_cast<int>(std::lround(at.x * kScale)),
            top = static_cast<int>(std::lround(at.y * kScale));
  for (int y = 0; y < picture.height; ++y) {
    if (top + y < 0 || top + y >= pixels_.height) continue;
    for (int x = 0; x < picture.width; ++x) {
      if (left + x < 0 || left + x >= pixels_.width) continue;
      uint8_t* to = pixels_.row(top + y) + size_t{3} * static_cast<size_t>(left + x);
      const uint8_t* from = picture.row(y) + static_cast<size_t>(x) * static_cast<size_t>(picture.channels);
      for (int k = 0; k < 3; ++k) to[k] = from[picture.channels == 3 ? k : 0];
    }
  }
}

}  // namespace ebclr::plot
