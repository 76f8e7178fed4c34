#include "plot/canvas.h"

#include <algorithm>
#include <cmath>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "core/error.h"
#include "core/files.h"

namespace ebclr::plot {
namespace {

constexpr int kDrawn = 4;          // drawn pixels per point
constexpr int kFinished = 2;       // pixels per point of the result
constexpr int kShift = 4;          // fractional bits of OpenCV's drawing coordinates
constexpr double kCapHeight = 21;  // of a Hershey letter at scale 1, in pixels

cv::Scalar scalar(Rgb c) {
  return {double(c[0]), double(c[1]), double(c[2])};
}

/// The Hershey fonts know ASCII only: any other character becomes one question mark.
std::string ascii(const std::string& text) {
  std::string out;
  for (unsigned char c : text) {
    if (c >= 32 && c < 127) {
      out += static_cast<char>(c);
    } else if ((c & 0xC0) != 0x80) {
      out += '?';
    }
  }
  return out;
}

struct Font {
  int face = cv::FONT_HERSHEY_SIMPLEX;
  double scale = 1;
  int thickness = 1;

  Font(double size, bool bold) {
    scale = size * kDrawn / kCapHeight;
    // A stroke of about an eighth of the letter's height reads like a normal weight.
    thickness = std::max(1, static_cast<int>(std::lround(size * kDrawn * (bold ? 0.17 : 0.115))));
  }
};

}  // namespace

Canvas::Canvas(double width, double height)
    : width_(width),
      height_(height),
      pixels_(static_cast<int>(std::lround(height * kDrawn)), static_cast<int>(std::lround(width * kDrawn)),
              CV_8UC3, scalar(kWhite)) {}

cv::Point Canvas::at(Point p) const {
  // Far outside points would overflow OpenCV's fixed point numbers.
  const double limit = 4 * std::max(width_, height_);
  const double unit = kDrawn * (1 << kShift);
  return {static_cast<int>(std::lround(std::clamp(p.x, -limit, limit) * unit)),
          static_cast<int>(std::lround(std::clamp(p.y, -limit, limit) * unit))};
}

int Canvas::thick(double thickness) const {
  return std::max(1, static_cast<int>(std::lround(thickness * kDrawn)));
}

void Canvas::line(Point a, Point b, Rgb colour, double thickness) {
  cv::line(pixels_, at(a), at(b), scalar(colour), thick(thickness), cv::LINE_AA, kShift);
}

void Canvas::polyline(const std::vector<Point>& points, Rgb colour, double thickness, bool dashed) {
  constexpr double kDash = 6, kGap = 4;
  double travelled = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const Point a = points[i - 1], b = points[i];
    if (!dashed) {
      line(a, b, colour, thickness);
      continue;
    }
    const double length = std::hypot(b.x - a.x, b.y - a.y);
    for (double done = 0; done < length;) {
      const double phase = std::fmod(travelled + done, kDash + kGap);
      const bool ink = phase < kDash;
      const double step = std::min(length - done, std::max(1e-3, (ink ? kDash : kDash + kGap) - phase));
      if (ink) {
        auto along = [&](double d) {
          return Point{a.x + (b.x - a.x) * d / length, a.y + (b.y - a.y) * d / length};
        };
        line(along(done), along(done + step), colour, thickness);
      }
      done += step;
    }
    travelled += length;
  }
}

void Canvas::polygon(const std::vector<Point>& points, Rgb colour, double opacity) {
  if (points.size() < 3) return;
  std::vector<cv::Point> corners;
  for (const Point& p : points) corners.push_back(at(p));
  cv::Rect box = cv::boundingRect(corners);
  const int unit = 1 << kShift;
  box = cv::Rect(box.x / unit - 1, box.y / unit - 1, box.width / unit + 3, box.height / unit + 3) &
        cv::Rect(0, 0, pixels_.cols, pixels_.rows);
  if (box.empty()) return;
  for (auto& c : corners) c -= cv::Point(box.x * unit, box.y * unit);
  cv::Mat target = pixels_(box), layer = target.clone();
  cv::fillPoly(layer, std::vector<std::vector<cv::Point>>{corners}, scalar(colour), cv::LINE_AA, kShift);
  cv::addWeighted(layer, opacity, target, 1 - opacity, 0, target);
}

void Canvas::rectangle(Point a, Point b, Rgb colour, double opacity) {
  auto pixel = [](double v) { return static_cast<int>(std::lround(v * kDrawn)); };
  const cv::Rect box = cv::Rect(cv::Point(pixel(a.x), pixel(a.y)), cv::Point(pixel(b.x), pixel(b.y))) &
                       cv::Rect(0, 0, pixels_.cols, pixels_.rows);
  if (box.empty()) return;
  cv::Mat target = pixels_(box);
  if (opacity >= 1) {
    target.setTo(scalar(colour));
  } else {
    cv::addWeighted(cv::Mat(box.size(), CV_8UC3, scalar(colour)), opacity, target, 1 - opacity, 0, target);
  }
}

void Canvas::frame(Point a, Point b, Rgb colour, double thickness) {
  cv::rectangle(pixels_, at(a), at(b), scalar(colour), thick(thickness), cv::LINE_AA, kShift);
}

void Canvas::disc(Point centre, double radius, Rgb colour) {
  cv::circle(pixels_, at(centre), static_cast<int>(std::lround(radius * kDrawn * (1 << kShift))),
             scalar(colour), cv::FILLED, cv::LINE_AA, kShift);
}

double Canvas::text_width(const std::string& text, double size, bool bold) {
  const Font font(size, bold);
  int baseline = 0;
  return double(cv::getTextSize(ascii(text), font.face, font.scale, font.thickness, &baseline).width) /
         kDrawn;
}

std::string Canvas::fit(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  for (size_t n = text.size(); n-- > 0;) {
    std::string shorter = text.substr(0, n) + "..";
    if (text_width(shorter, size) <= width) return shorter;
  }
  return "";
}

void Canvas::text(const std::string& raw, Point where, double size, Align align, Rgb colour, bool bold) {
  const Font font(size, bold);
  const std::string text = ascii(raw);
  const double wide = text_width(text, size, bold);
  double x = where.x;
  if (align == Align::kCentre) x -= wide / 2;
  if (align == Align::kRight) x -= wide;
  const cv::Point origin(static_cast<int>(std::lround(x * kDrawn)),
                         static_cast<int>(std::lround((where.y + size / 2) * kDrawn)));
  cv::putText(pixels_, text, origin, font.face, font.scale, scalar(colour), font.thickness, cv::LINE_AA);
}

void Canvas::text_upwards(const std::string& raw, Point where, double size, Rgb colour) {
  const std::string text = ascii(raw);
  if (text.empty()) return;
  Canvas strip(text_width(text, size) + 2, size * 2);
  strip.text(text, {strip.width() / 2, strip.height() / 2}, size, Align::kCentre, colour);
  cv::Mat turned;
  cv::rotate(strip.pixels_, turned, cv::ROTATE_90_COUNTERCLOCKWISE);
  const cv::Point corner(static_cast<int>(std::lround(where.x * kDrawn)) - turned.cols / 2,
                         static_cast<int>(std::lround(where.y * kDrawn)) - turned.rows / 2);
  const cv::Rect box = cv::Rect(corner, turned.size()) & cv::Rect(0, 0, pixels_.cols, pixels_.rows);
  if (!box.empty()) turned(box - corner).copyTo(pixels_(box));
}

Image Canvas::finish() const {
  cv::Mat small;
  cv::resize(pixels_, small, {}, double(kFinished) / kDrawn, double(kFinished) / kDrawn, cv::INTER_AREA);
  Image image{small.cols, small.rows, {}};
  image.rgb.assign(small.data, small.data + small.total() * 3);
  return image;
}

std::vector<std::byte> encode_png(const Image& image) {
  if (image.width <= 0 || image.height <= 0 || image.rgb.size() != size_t(image.width) * image.height * 3) {
    core::usage_error("plot", "cannot encode an empty picture; draw something first");
  }
  const cv::Mat rgb(image.height, image.width, CV_8UC3, const_cast<uint8_t*>(image.rgb.data()));
  cv::Mat bgr;
  cv::cvtColor(rgb, bgr, cv::COLOR_RGB2BGR);
  std::vector<uint8_t> bytes;
  if (!cv::imencode(".png", bgr, bytes)) core::run_error("plot", "PNG encoder failed");
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

void write_png(const std::filesystem::path& path, const Image& image) {
  const auto bytes = encode_png(image);
  if (path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) {
      core::usage_error("plot", "cannot create folder " + path.parent_path().string() + " (" +
                                    error.message() + "); choose another place for the picture");
    }
  }
  core::AtomicFile file(path, "plot");
  file.write(bytes);
  file.commit();
}

}  // namespace ebclr::plot
