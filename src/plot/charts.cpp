#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "plot/canvas.h"
#include "plot/finish.h"
#include "plot/plot.h"
#include "plot/ticks.h"

namespace ebclr::plot {
namespace {

constexpr double kTitleSize = 9.5, kLabelSize = 7.5, kTickSize = 6.5;

struct Box {
  double left, top, right, bottom;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

struct LegendEntry {
  std::string name;
  Rgb colour;
  bool dashed = false;
};

enum class Mark { kLine, kBlock, kDot };

/// Rows of a legend that fills `width`; each entry takes the width of the widest, so that columns align.
struct LegendLayout {
  int columns = 1, rows = 0;
  double cell = 0;
  static constexpr double kRow = 15;

  LegendLayout(const std::vector<LegendEntry>& entries, double width) {
    for (const auto& e : entries) cell = std::max(cell, Canvas::text_width(e.name, kTickSize) + 34);
    cell = std::min(cell, width);
    const int n = static_cast<int>(entries.size());
    columns = std::clamp(static_cast<int>(width / std::max(cell, 1.0)), 1, std::max(n, 1));
    rows = (n + columns - 1) / columns;
  }
  double height() const { return rows * kRow; }
};

void draw_legend(Canvas& canvas, const std::vector<LegendEntry>& entries, const LegendLayout& layout,
                 double left, double top, Mark mark) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const double x = left + layout.cell * (i % layout.columns);
    const double y = top + LegendLayout::kRow * (i / layout.columns + 0.5);
    if (mark == Mark::kLine) canvas.polyline({{x, y}, {x + 18, y}}, entries[i].colour, 2, entries[i].dashed);
    if (mark == Mark::kBlock) canvas.rectangle({x + 4, y - 4}, {x + 16, y + 4}, entries[i].colour, 0.65);
    if (mark == Mark::kDot) canvas.disc({x + 12, y}, 3.5, entries[i].colour);
    canvas.text(Canvas::fit(entries[i].name, layout.cell - 26, kTickSize), {x + 23, y}, kTickSize,
                Align::kLeft, kInk);
  }
}

/// Draws title, grid, ticks and labels around `box`.
void draw_axes(Canvas& canvas, const Box& box, const Axis& x, const Axis& y, const ChartOptions& options) {
  canvas.rectangle({box.left, box.top}, {box.right, box.bottom}, kWhite);
  auto step_of = [](const Axis& axis) {
    return axis.log || axis.ticks.size() < 2 ? 0.0 : axis.ticks[1] - axis.ticks[0];
  };
  auto label = [&](const Axis& axis, double tick) {
    return axis.log ? tick_label(tick, tick)
                    : tick_label(tick, step_of(axis) ? step_of(axis) : std::abs(tick));
  };
  for (double tick : x.ticks) {
    const double px = box.left + x.place(tick) * box.width();
    canvas.line({px, box.top}, {px, box.bottom}, kGridLine, 0.75);
    canvas.text(label(x, tick), {px, box.bottom + 10}, kTickSize, Align::kCentre, kSoftInk);
  }
  for (double tick : y.ticks) {
    const double py = box.bottom - y.place(tick) * box.height();
    canvas.line({box.left, py}, {box.right, py}, kGridLine, 0.75);
    canvas.text(label(y, tick), {box.left - 6, py}, kTickSize, Align::kRight, kSoftInk);
  }
  canvas.line({box.left, box.bottom}, {box.right, box.bottom}, kFrame, 1);
  canvas.line({box.left, box.top}, {box.left, box.bottom}, kFrame, 1);
  canvas.text(Canvas::fit(options.title, canvas.width() - box.left - 8, kTitleSize, true), {box.left, 18},
              kTitleSize, Align::kLeft, kInk, true);
  canvas.text(options.x_label, {(box.left + box.right) / 2, box.bottom + 27}, kLabelSize, Align::kCentre);
  canvas.text_upwards(options.y_label, {12, (box.top + box.bottom) / 2}, kLabelSize);
}

double widest_label(const Axis& axis) {
  double wide = 0;
  const double step = axis.log || axis.ticks.size() < 2 ? 0 : axis.ticks[1] - axis.ticks[0];
  for (double t : axis.ticks) {
    wide = std::max(wide, Canvas::text_width(tick_label(t, axis.log ? t
                                                           : step   ? step
                                                                    : std::abs(t)),
                                             kTickSize));
  }
  return wide;
}

/// Smallest and largest finite values; positive ones only on a logarithmic axis.
struct Range {
  double low = INFINITY, high = -INFINITY;
  bool log = false;
  void add(double v) {
    if (!std::isfinite(v) || (log && v <= 0)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
};

Image nothing_to_show(const ChartOptions& options) {
  Canvas canvas(options.width, options.height);
  canvas.rectangle({0, 0}, {canvas.width(), canvas.height()}, kEmpty);
  canvas.text(options.title, {16, 18}, kTitleSize, Align::kLeft, kInk, true);
  canvas.text("no data", {canvas.width() / 2, canvas.height() / 2}, kLabelSize, Align::kCentre, kSoftInk);
  return finish(canvas);
}

Box plot_area(const ChartOptions& options, double y_labels, double legend) {
  const double left = y_labels + 12 + (options.y_label.empty() ? 8 : 22);
  const double bottom = 22 + (options.x_label.empty() ? 0 : 16) + (legend > 0 ? legend + 8 : 0);
  return {left, options.title.empty() ? 14.0 : 36.0, options.width - 22.0, options.height - bottom};
}

Rgb mix(Rgb a, Rgb b, double t) {
  Rgb out{};
  for (int i = 0; i < 3; ++i) out[i] = static_cast<uint8_t>(std::lround(a[i] + (b[i] - a[i]) * t));
  return out;
}

void check_chart(const ChartOptions& options) {
  if (options.width < 120 || options.height < 100 || options.width > 6000 || options.height > 6000) {
    core::usage_error("plot",
                      fmt::format("a chart of {} x {} points cannot be drawn; use 120 x 100 to 6000 x 6000",
                                  options.width, options.height));
  }
}

}  // namespace

std::array<uint8_t, 3> colour(int64_t k) {
  static constexpr Rgb kFirst[] = {{31, 111, 180}, {230, 120, 20}, {40, 150, 70},   {205, 45, 50},
                                   {130, 95, 180}, {140, 90, 75},  {220, 110, 180}, {120, 124, 130},
                                   {175, 170, 30}, {20, 175, 195}};
  if (k < 0) return {190, 194, 200};
  if (k < 10) return kFirst[k];
  // Golden-ratio steps round the hue circle, in three strengths.
  const double hue = std::fmod(0.11 + 0.618033988749895 * double(k), 1.0) * 6;
  const double value = k % 3 == 0 ? 0.85 : k % 3 == 1 ? 0.65 : 0.5, chroma = value * 0.75;
  Rgb out{};
  for (int i = 0; i < 3; ++i) {
    const double h = std::fmod(hue + (i == 0 ? 5 : i == 1 ? 3 : 1), 6.0);
    const double c = value - chroma * std::max(0.0, std::min({h, 4 - h, 1.0}));
    out[i] = static_cast<uint8_t>(std::lround(255 * c));
  }
  return out;
}

Image line_chart(const std::vector<Series>& series, const ChartOptions& options) {
  check_chart(options);
  Range xr{.log = options.log_x}, yr{.log = options.log_y};
  std::vector<LegendEntry> entries;
  for (size_t k = 0; k < series.size(); ++k) {
    const Series& s = series[k];
    if (s.x.size() != s.y.size() || s.low.size() != s.high.size() ||
        (!s.low.empty() && s.low.size() != s.y.size())) {
      core::usage_error(
          "plot", fmt::format("series '{}' has {} x, {} y, {} low and {} high values; give equal counts",
                              s.name, s.x.size(), s.y.size(), s.low.size(), s.high.size()));
    }
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i]) || (options.log_x && s.x[i] <= 0) ||
          (options.log_y && s.y[i] <= 0)) {
        continue;
      }
      xr.add(s.x[i]);
      yr.add(s.y[i]);
      if (!s.low.empty()) yr.add(s.low[i]), yr.add(s.high[i]);
    }
    if (!s.name.empty()) entries.push_back({s.name, colour(k), s.dashed});
  }
  if (xr.empty() || yr.empty()) return nothing_to_show(options);

  Axis y = make_axis(options.y_min.value_or(yr.low), options.y_max.value_or(yr.high), 5, options.log_y,
                     !options.y_min && !options.y_max);
  const LegendLayout legend(entries, options.width - 70);
  const Box box = plot_area(options, widest_label(y), legend.height());
  const Axis x =
      make_axis(xr.low, xr.high, std::max(2, static_cast<int>(box.width() / 75)), options.log_x, false);

  Canvas canvas(options.width, options.height);
  draw_axes(canvas, box, x, y, options);
  auto usable = [&](const Series& s, size_t i) {
    return std::isfinite(s.x[i]) && std::isfinite(s.y[i]) && !(options.log_x && s.x[i] <= 0) &&
           !(options.log_y && s.y[i] <= 0);
  };
  auto place = [&](double vx, double vy) {
    return Point{box.left + x.place(vx) * box.width(),
                 std::clamp(box.bottom - y.place(options.log_y ? std::max(vy, y.low) : vy) * box.height(),
                            box.top, box.bottom)};
  };
  for (size_t k = 0; k < series.size(); ++k) {
    const Series& s = series[k];
    if (s.low.empty()) continue;
    // One polygon per uninterrupted stretch: along the lower edge and back along the upper.
    std::vector<Point> lower, upper;
    auto fill = [&] {
      lower.insert(lower.end(), upper.rbegin(), upper.rend());
      canvas.polygon(lower, colour(k), 0.16);
      lower.clear(), upper.clear();
    };
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (usable(s, i) && std::isfinite(s.low[i]) && std::isfinite(s.high[i])) {
        lower.push_back(place(s.x[i], s.low[i]));
        upper.push_back(place(s.x[i], s.high[i]));
      } else {
        fill();
      }
    }
    fill();
  }
  for (size_t k = 0; k < series.size(); ++k) {
    const Series& s = series[k];
    std::vector<Point> run;
    auto flush = [&] {
      canvas.polyline(run, colour(k), 1.75, s.dashed);
      if (s.markers || run.size() == 1) {
        for (const Point& p : run) canvas.disc(p, 3, colour(k));
      }
      run.clear();
    };
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (usable(s, i)) {
        run.push_back(place(s.x[i], s.y[i]));
      } else {
        flush();
      }
    }
    flush();
  }
  draw_legend(canvas, entries, legend, box.left, options.height - legend.height() - 5, Mark::kLine);
  return finish(canvas);
}

Image histogram(const std::vector<Sample>& samples, int bins, const ChartOptions& options) {
  check_chart(options);
  if (bins < 1 || bins > 2000) {
    core::usage_error("plot", fmt::format("a histogram of {} bins cannot be drawn; use 1 to 2000", bins));
  }
  Range xr{};
  for (const auto& s : samples) {
    for (double v : s.values) xr.add(v);
  }
  if (xr.empty()) return nothing_to_show(options);
  if (xr.low == xr.high) xr.low -= 0.5, xr.high += 0.5;
  std::vector<std::vector<double>> shares;
  std::vector<LegendEntry> entries;
  double top = 0;
  for (size_t k = 0; k < samples.size(); ++k) {
    std::vector<double> share(bins, 0.0);
    double count = 0;
    for (double v : samples[k].values) {
      if (!std::isfinite(v)) continue;
      const auto bin = static_cast<int>((v - xr.low) / (xr.high - xr.low) * bins);
      share[std::clamp(bin, 0, bins - 1)] += 1;
      count += 1;
    }
    for (double& v : share) v = count > 0 ? v / count : 0, top = std::max(top, v);
    shares.push_back(std::move(share));
    if (!samples[k].name.empty()) entries.push_back({samples[k].name, colour(k)});
  }
  const Axis y = make_axis(0, options.y_max.value_or(top), 5, false, !options.y_max);
  const LegendLayout legend(entries, options.width - 70);
  const Box box = plot_area(options, widest_label(y), legend.height());
  const Axis x = make_axis(xr.low, xr.high, std::max(2, static_cast<int>(box.width() / 75)), false, false);
  Canvas canvas(options.width, options.height);
  draw_axes(canvas, box, x, y, options);
  for (size_t k = 0; k < shares.size(); ++k) {
    std::vector<Point> outline{{box.left, box.bottom}};
    for (int b = 0; b < bins; ++b) {
      const double py = std::max(box.top, box.bottom - y.place(shares[k][b]) * box.height());
      outline.push_back({box.left + box.width() * b / bins, py});
      outline.push_back({box.left + box.width() * (b + 1) / bins, py});
    }
    outline.push_back({box.right, box.bottom});
    canvas.polygon(outline, colour(k), 0.3);
    canvas.polyline(outline, colour(k), 1.25);
  }
  draw_legend(canvas, entries, legend, box.left, options.height - legend.height() - 5, Mark::kBlock);
  return finish(canvas);
}

Image confusion_matrix(const torch::Tensor& counts, const std::vector<std::string>& class_names,
                       const std::string& title) {
  if (!counts.defined() || counts.dim() != 2 || counts.size(0) != counts.size(1) || counts.size(0) == 0) {
    core::usage_error("plot", "a confusion matrix is square and not empty; give int64 [C, C]");
  }
  const int64_t n = counts.size(0);
  const auto table = counts.to(torch::kCPU, torch::kInt64).contiguous();
  const auto* cell_count = table.data_ptr<int64_t>();
  auto name = [&](int64_t k) {
    return k < static_cast<int64_t>(class_names.size()) ? class_names[k] : std::to_string(k);
  };
  // Cells shrink as classes become many; numbers disappear when they would not be readable.
  const double cell = n <= 10 ? 42 : n <= 20 ? 30 : std::max(4.0, 600.0 / double(n));
  const bool numbers = cell >= 28;
  const int64_t stride = cell >= 11 ? 1 : static_cast<int64_t>(std::ceil(11 / cell));
  double names = 0;
  for (int64_t k = 0; k < n; ++k) names = std::max(names, Canvas::text_width(name(k), kTickSize));
  names = std::min(names, 110.0);
  const double left = names + 38, top = title.empty() ? 16 : 40;
  const double side = cell * double(n), bar = 12;
  Canvas canvas(left + side + 70, top + side + names + 40);
  canvas.text(Canvas::fit(title, canvas.width() - 24, kTitleSize, true), {16, 18}, kTitleSize, Align::kLeft,
              kInk, true);

  const Rgb kDeep{12, 62, 120};
  auto shade = [&](double share) {
    return mix(Rgb{244, 248, 252}, kDeep, std::sqrt(std::clamp(share, 0.0, 1.0)));
  };
  for (int64_t i = 0; i < n; ++i) {
    double row = 0;
    for (int64_t j = 0; j < n; ++j) row += double(cell_count[i * n + j]);
    for (int64_t j = 0; j < n; ++j) {
      const double share = row > 0 ? double(cell_count[i * n + j]) / row : 0;
      const Point a{left + cell * double(j), top + cell * double(i)};
      canvas.rectangle(a, {a.x + cell, a.y + cell}, shade(share));
      if (numbers && cell_count[i * n + j] != 0) {
        const std::string text = std::to_string(cell_count[i * n + j]);
        double size = 6.5;
        while (size > 3.5 && Canvas::text_width(text, size) > cell - 5) size -= 0.25;
        canvas.text(text, {a.x + cell / 2, a.y + cell / 2}, size, Align::kCentre,
                    share > 0.3 ? kWhite : kInk);
      }
    }
  }
  for (int64_t k = 0; numbers && k <= n; ++k) {
    canvas.line({left + cell * double(k), top}, {left + cell * double(k), top + side}, kWhite, 0.75);
    canvas.line({left, top + cell * double(k)}, {left + side, top + cell * double(k)}, kWhite, 0.75);
  }
  canvas.frame({left, top}, {left + side, top + side}, kFrame, 0.75);
  for (int64_t k = 0; k < n; k += stride) {
    const std::string text = Canvas::fit(name(k), 110, kTickSize);
    const double middle = cell * (double(k) + 0.5);
    canvas.text(text, {left - 6, top + middle}, kTickSize, Align::kRight, kSoftInk);
    canvas.text_upwards(text, {left + middle, top + side + 7 + Canvas::text_width(text, kTickSize) / 2},
                        kTickSize, kSoftInk);
  }
  canvas.text_upwards("truth", {12, top + side / 2}, kLabelSize);
  canvas.text("prediction", {left + side / 2, top + side + names + 26}, kLabelSize, Align::kCentre);

  const double bar_left = left + side + 16, steps = 100;
  for (int s = 0; s < steps; ++s) {
    const double y0 = top + side * (1 - (s + 1) / steps), y1 = top + side * (1 - s / steps);
    canvas.rectangle({bar_left, y0}, {bar_left + bar, y1}, shade((s + 0.5) / steps));
  }
  for (int percent : {0, 25, 50, 75, 100}) {
    canvas.text(fmt::format("{}%", percent), {bar_left + bar + 5, top + side * (1 - percent / 100.0)}, 5.5,
                Align::kLeft, kSoftInk);
  }
  return finish(canvas);
}

Image scatter_map(const torch::Tensor& points, const torch::Tensor& labels,
                  const std::vector<std::string>& class_names, const ChartOptions& options) {
  check_chart(options);
  if (!points.defined() || points.dim() != 2 || points.size(1) != 2 ||
      (labels.defined() && (labels.dim() != 1 || labels.size(0) != points.size(0)))) {
    core::usage_error("plot", "a map needs points [N, 2] and as many labels [N]");
  }
  const auto xy = points.to(torch::kCPU, torch::kFloat64).contiguous();
  const auto marks = (labels.defined() ? labels : torch::full({points.size(0)}, -1, torch::kInt64))
                         .to(torch::kCPU, torch::kInt64)
                         .contiguous();
  const double* p = xy.data_ptr<double>();
  const int64_t* label = marks.data_ptr<int64_t>();
  const int64_t n = xy.size(0);
  Range xr{}, yr{};
  int64_t largest = -1;
  for (int64_t i = 0; i < n; ++i) {
    xr.add(p[2 * i]), yr.add(p[2 * i + 1]);
    largest = std::max(largest, label[i]);
  }
  if (xr.empty() || yr.empty()) return nothing_to_show(options);
  std::vector<LegendEntry> entries;
  constexpr int64_t kMaxLegend = 40;
  for (int64_t k = 0; k <= largest && largest < kMaxLegend; ++k) {
    entries.push_back(
        {k < static_cast<int64_t>(class_names.size()) ? class_names[k] : std::to_string(k), colour(k)});
  }
  const LegendLayout legend(entries, options.width - 32);
  const double top = options.title.empty() ? 14 : 36, left = 16, right = options.width - 16.0;
  const double bottom = options.height - (legend.rows ? legend.height() + 12 : 14);
  Canvas canvas(options.width, options.height);
  canvas.rectangle({left, top}, {right, bottom}, kEmpty);
  canvas.text(Canvas::fit(options.title, options.width - 32, kTitleSize, true), {left, 18}, kTitleSize,
              Align::kLeft, kInk, true);
  // One scale for both directions: distances on a map mean something.
  const double scale = std::min((right - left - 24) / std::max(xr.high - xr.low, 1e-12),
                                (bottom - top - 24) / std::max(yr.high - yr.low, 1e-12));
  const double radius = std::clamp(90 / std::sqrt(double(n)), 1.1, 3.5);
  // A stride through the points, so that no class lies on top merely by its place in the set.
  int64_t stride = 7919;
  while (std::gcd(stride, n) != 1) ++stride;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t i = k * stride % n;
    if (!std::isfinite(p[2 * i]) || !std::isfinite(p[2 * i + 1])) continue;
    canvas.disc({(left + right) / 2 + (p[2 * i] - (xr.low + xr.high) / 2) * scale,
                 (top + bottom) / 2 - (p[2 * i + 1] - (yr.low + yr.high) / 2) * scale},
                radius, colour(label[i]));
  }
  draw_legend(canvas, entries, legend, left, bottom + 7, Mark::kDot);
  return finish(canvas);
}

}  // namespace ebclr::plot
