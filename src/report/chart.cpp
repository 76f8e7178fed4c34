#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "plot/ticks.h"

namespace ebclr::report {
namespace {

constexpr double kSide = 1000;  // user units of the SVG in both directions; it is stretched to its box
constexpr int kColumns = 300;   // of thinning: a chart is some 300 to 800 CSS pixels wide
constexpr size_t kManyNames = 60;

struct Range {
  double low = INFINITY, high = -INFINITY;
  bool log = false;
  bool takes(double v) const { return std::isfinite(v) && !(log && v <= 0); }
  void add(double v) {
    if (!takes(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return low > high; }
};

/// Coordinates with as many digits as a screen can show.
std::string units(double v) {
  std::string s = fmt::format("{:.1f}", v);
  if (s.ends_with(".0")) s.resize(s.size() - 2);
  return s == "-0" ? "0" : s;
}

nlohmann::json number(double v) {
  if (!std::isfinite(v)) return nullptr;
  return std::stod(fmt::format("{:.6g}", v));
}

std::vector<std::string> labels_of(const plot::Axis& axis) {
  std::vector<std::string> out;
  const double step = axis.ticks.size() > 1 && !axis.log ? axis.ticks[1] - axis.ticks[0] : 0;
  for (double t : axis.ticks)
    out.push_back(axis_label(t, axis.log ? t : step > 0 ? step : std::max(std::abs(t), 1e-300)));
  return out;
}

std::string dump(const nlohmann::json& j) {
  return script_json(j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string short_value(double v) {
  return fmt::format("{:.4g}", v);
}

}  // namespace

std::string axis_label(double value, double step) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  constexpr std::pair<double, const char*> kSuffixes[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  if (size >= 1e15) return fmt::format("{:.2g}", value);
  for (const auto& [unit, suffix] : kSuffixes) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) {
      // As many decimals as tell neighbouring labels apart.
      for (int decimals = 0; decimals <= 3; ++decimals) {
        const double round = std::pow(10, -decimals) * unit;
        if (std::abs(std::remainder(step, round)) < 1e-6 * step || decimals == 3)
          return fmt::format("{:.{}f}{}", value / unit, decimals, suffix);
      }
    }
  }
  return plot::tick_label(value, step);
}

std::string script_json(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

std::string base64(const std::byte* bytes, size_t count) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((count + 2) / 3 * 4);
  for (size_t i = 0; i < count; i += 3) {
    const size_t left = std::min<size_t>(3, count - i);
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k) word = word << 8 | (k < left ? static_cast<uint32_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= left ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::vector<ChartPoint> thin(const std::vector<ChartPoint>& stretch, double x_low, double x_high,
                             int columns) {
  if (stretch.size() <= 2 * static_cast<size_t>(columns) || !(x_high > x_low)) return stretch;
  std::vector<ChartPoint> out;
  auto column = [&](const ChartPoint& p) {
    return std::clamp(static_cast<int>((p.x - x_low) / (x_high - x_low) * columns), 0, columns - 1);
  };
  for (size_t begin = 0; begin < stretch.size();) {
    size_t end = begin, lowest = begin, highest = begin;
    double low = INFINITY, high = -INFINITY;
    for (; end < stretch.size() && column(stretch[end]) == column(stretch[begin]); ++end) {
      if (stretch[end].y < stretch[lowest].y) lowest = end;
      if (stretch[end].y > stretch[highest].y) highest = end;
      low = std::min(low, stretch[end].low);
      high = std::max(high, stretch[end].high);
    }
    size_t kept[] = {begin, lowest, highest, end - 1};
    std::sort(std::begin(kept), std::end(kept));
    for (size_t k = 0; k < 4; ++k) {
      if (k > 0 && kept[k] == kept[k - 1]) continue;
      out.push_back(stretch[kept[k]]);
      out.back().low = low, out.back().high = high;
    }
    begin = end;
  }
  return out;
}

namespace {

/// The part of a chart that data are drawn into.
struct Frame {
  Range xr, yr;
  plot::Axis x, y;

  double px(double v) const { return kSide * x.place(v); }
  double py(double v) const {
    return kSide * (1 - std::clamp(y.place(y.log ? std::max(v, y.low) : v), 0.0, 1.0));
  }
};

/// What all series cover; throws Error for one that is malformed.
std::pair<Range, Range> ranges_of(const Chart& chart) {
  Range xr{.log = chart.log_x}, yr{.log = chart.log_y};
  for (const auto& s : chart.series) {
    if (s.x.size() != s.y.size() || s.low.size() != s.high.size() ||
        (!s.low.empty() && s.low.size() != s.y.size())) {
      core::usage_error(
          "report", fmt::format("series '{}' has {} x, {} y, {} low and {} high values; give equal counts",
                                s.name, s.x.size(), s.y.size(), s.low.size(), s.high.size()));
    }
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!xr.takes(s.x[i]) || !yr.takes(s.y[i])) continue;
      xr.add(s.x[i]), yr.add(s.y[i]);
      if (!s.low.empty()) yr.add(s.low[i]), yr.add(s.high[i]);
    }
  }
  return {xr, yr};
}

/// One series as paths of the SVG, as data for the read-out, and in figures.
class DrawnSeries {
 public:
  DrawnSeries(const plot::Series& s, const Frame& frame) : s_(s), f_(frame) {
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!f_.xr.takes(s.x[i]) || !f_.yr.takes(s.y[i])) {
        flush();
        continue;
      }
      const bool with_band = !s.low.empty() && f_.yr.takes(s.high[i]) && std::isfinite(s.low[i]);
      stretch_.push_back({s.x[i], s.y[i], with_band ? s.low[i] : s.y[i], with_band ? s.high[i] : s.y[i]});
      if (count_++ == 0) first_ = s.y[i];
      last_ = s.y[i];
      seen_.add(s.y[i]);
    }
    flush();
  }

  std::string band(const std::string& colour) const {
    return band_.empty() ? "" : fmt::format("<path class=\"band {}\" d=\"{}\"/>", colour, band_);
  }
  std::string line(const std::string& colour, const char* dash) const {
    std::string out = "<g>";
    if (!line_.empty()) out += fmt::format("<path class=\"line {}{}\" d=\"{}\"/>", colour, dash, line_);
    if (!dots_.empty()) out += fmt::format("<path class=\"dots {}\" d=\"{}\"/>", colour, dots_);
    return out + "</g>";
  }
  nlohmann::json data(int64_t colour) const {
    nlohmann::json entry{{"name", s_.name}, {"c", colour}, {"x", xs_}, {"y", ys_}};
    if (!s_.low.empty()) entry["low"] = lows_, entry["high"] = highs_;
    return entry;
  }
  std::string summary() const {
    return fmt::format("<tr><th scope=\"row\">{}</th>{}</tr>", escape(s_.name),
                       count_ == 0 ? std::string("<td colspan=\"5\">no data</td>")
                                   : fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
                                                 count_, short_value(first_), short_value(last_),
                                                 short_value(seen_.low), short_value(seen_.high)));
  }

 private:
  // A stretch without gaps. Columns are equal on the screen, hence of logarithms on such an axis: thinning
  // works on places.
  void flush() {
    if (stretch_.empty()) return;
    const bool banded = !s_.low.empty();
    if (!xs_.empty()) xs_.push_back(nullptr), ys_.push_back(nullptr);
    if (!xs_.empty() && banded) lows_.push_back(nullptr), highs_.push_back(nullptr);
    for (auto& p : stretch_) p.x = f_.x.place(p.x);
    const auto points = thin(stretch_, 0, 1, kColumns);
    std::string lower, upper;
    for (size_t i = 0; i < points.size(); ++i) {
      const auto& p = points[i];
      const std::string at = units(kSide * p.x);
      const char* pen = i == 0 ? "M" : "L";
      line_ += fmt::format("{}{} {}", pen, at, units(f_.py(p.y)));
      if (s_.markers || points.size() == 1) dots_ += fmt::format("M{} {}h0", at, units(f_.py(p.y)));
      if (banded) {
        lower += fmt::format("{}{} {}", pen, at, units(f_.py(p.low)));
        upper.insert(0, fmt::format("L{} {}", at, units(f_.py(p.high))));
        lows_.push_back(number(p.low)), highs_.push_back(number(p.high));
      }
      const auto& x = f_.x;
      xs_.push_back(number(x.log ? x.low * std::pow(x.high / x.low, p.x) : x.low + p.x * (x.high - x.low)));
      ys_.push_back(number(p.y));
    }
    if (banded) band_ += lower + upper + "Z";
    stretch_.clear();
  }

  const plot::Series& s_;
  const Frame& f_;
  std::vector<ChartPoint> stretch_;
  std::string line_, dots_, band_;
  nlohmann::json xs_ = nlohmann::json::array(), ys_ = xs_, lows_ = xs_, highs_ = xs_;
  double first_ = NAN, last_ = NAN;
  Range seen_{};
  size_t count_ = 0;
};

/// Grid, bands, lines and the labels of both axes.
std::string area_html(const Chart& chart, const Frame& f, const std::string& bands,
                      const std::string& lines) {
  std::string grid;
  for (double t : f.x.ticks) grid += fmt::format("M{} 0V{}", units(f.px(t)), units(kSide));
  for (double t : f.y.ticks) grid += fmt::format("M0 {}H{}", units(f.py(t)), units(kSide));
  size_t widest = 1;
  const auto x_labels = labels_of(f.x), y_labels = labels_of(f.y);
  for (const auto& l : y_labels) widest = std::max(widest, l.size());
  const std::string name = chart.title.empty() ? chart.y_label : chart.title;
  std::string out = fmt::format(
      "<div class=\"area\" style=\"--yw:{}ch\" tabindex=\"0\" role=\"img\" aria-label=\"{}\">"
      "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
      "<path class=\"grid\" d=\"{}\"/>{}{}</svg>",
      widest + 1,
      escape(fmt::format("Line chart: {}{}{}", name, chart.x_label.empty() ? "" : " over ", chart.x_label)),
      grid, bands, lines);
  for (size_t i = 0; i < f.y.ticks.size(); ++i)
    out += fmt::format("<span class=\"yt\" style=\"top:{}%\">{}</span>", units(f.py(f.y.ticks[i]) / 10),
                       y_labels[i]);
  for (size_t i = 0; i < f.x.ticks.size(); ++i)
    out += fmt::format("<span class=\"xt\" style=\"left:{}%\">{}</span>", units(f.px(f.x.ticks[i]) / 10),
                       x_labels[i]);
  return out + "</div>";
}

}  // namespace

std::string chart_html(const Chart& chart) {
  if (!chart.colours.empty() && chart.colours.size() != chart.series.size())
    core::usage_error("report", fmt::format("chart '{}' has {} series and {} colours; give equal counts",
                                            chart.title, chart.series.size(), chart.colours.size()));
  const auto colour_of = [&](size_t k) {
    return chart.colours.empty() ? static_cast<int64_t>(k) : int64_t{chart.colours[k]};
  };
  // After the ten colours come around again, dots tell lines apart.
  const auto dash_of = [&](size_t k) {
    return chart.series[k].dashed ? " dashed" : colour_of(k) >= 10 ? " dotted" : "";
  };
  const auto [xr, yr] = ranges_of(chart);
  std::string out = "<figure class=\"chart\">";
  if (!chart.title.empty()) out += fmt::format("<figcaption>{}</figcaption>", escape(chart.title));
  if (xr.empty() || yr.empty()) return out + "<p class=\"nothing\">No data</p></figure>\n";

  const Frame frame{xr, yr, plot::make_axis(xr.low, xr.high, 6, chart.log_x, false),
                    plot::make_axis(yr.low, yr.high, 5, chart.log_y, true)};
  const auto &x = frame.x, &y = frame.y;
  std::string bands, lines, summary;
  nlohmann::json data{{"x", chart.x_label}, {"series", nlohmann::json::array()}};
  for (size_t k = 0; k < chart.series.size(); ++k) {
    const DrawnSeries drawn(chart.series[k], frame);
    const auto index = colour_index(colour_of(k));
    const std::string colour = fmt::format("c{}", index);
    bands += drawn.band(colour);
    lines += drawn.line(colour, dash_of(k));
    data["series"].push_back(drawn.data(index));
    summary += drawn.summary();
  }
  data["ax"] = {x.low, x.high, x.log};
  data["ay"] = {y.low, y.high, y.log};
  if (!chart.y_label.empty()) out += fmt::format("<div class=\"ylabel\">{}</div>", escape(chart.y_label));
  out += area_html(chart, frame, bands, lines);
  if (!chart.x_label.empty()) out += fmt::format("<div class=\"xlabel\">{}</div>", escape(chart.x_label));
  const std::string name = chart.title.empty() ? chart.y_label : chart.title;
  const bool one_unnamed = chart.series.size() == 1 && chart.series[0].name.empty();
  if (!one_unnamed && chart.series.size() <= kManyNames) {
    out += "<ul class=\"legend\">";
    for (size_t k = 0; k < chart.series.size(); ++k) {
      out += fmt::format(
          "<li class=\"c{}\"><svg class=\"key\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path "
          "class=\"line c{}{}\" "
          "d=\"M1 5H21\"/></svg>{}</li>",
          colour_index(colour_of(k)), colour_index(colour_of(k)), dash_of(k), escape(chart.series[k].name));
    }
    out += "</ul>";
  }
  out += fmt::format(
      "<div class=\"unseen\"><table><caption>{}</caption><thead><tr><th scope=\"col\">line</th><th "
      "scope=\"col\">points</th><th scope=\"col\">first</th><th scope=\"col\">last</th><th "
      "scope=\"col\">lowest</th><th scope=\"col\">highest</th></tr></thead><tbody>{}</tbody></table></div>",
      escape(name), summary);
  out += fmt::format("<script type=\"application/json\">{}</script></figure>\n", dump(data));
  return out;
}

std::string map_html(const PointMap& map) {
  const size_t n = map.x.size();
  if (map.y.size() != n || (!map.classes.empty() && map.classes.size() != n) ||
      (!map.notes.empty() && map.notes.size() != n)) {
    core::usage_error("report",
                      fmt::format("a map has {} x, {} y, {} classes and {} notes; give equal counts", n,
                                  map.y.size(), map.classes.size(), map.notes.size()));
  }
  Range xr{}, yr{};
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(map.x[i]) || !std::isfinite(map.y[i])) continue;
    xr.add(map.x[i]), yr.add(map.y[i]);
  }
  std::string out = "<figure class=\"map\">";
  if (!map.title.empty()) out += fmt::format("<figcaption>{}</figcaption>", escape(map.title));
  if (xr.empty()) return out + "<p class=\"nothing\">No data</p></figure>\n";
  // One scale for both directions: distances on a map mean something.
  const double width = std::max(xr.high - xr.low, 1e-12), height = std::max(yr.high - yr.low, 1e-12);
  const double scale = (kSide - 60) / std::max(width, height);
  const double mid_x = (xr.low + xr.high) / 2, mid_y = (yr.low + yr.high) / 2;
  const double half_w = std::max(width * scale / 2 + 30, 250.0),
               half_h = std::max(height * scale / 2 + 30, 250.0);
  std::vector<std::string> dots(map.class_names.size() + 1);
  std::vector<size_t> members(dots.size());
  nlohmann::json points = nlohmann::json::array();
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(map.x[i]) || !std::isfinite(map.y[i])) {
      points.push_back(nullptr);
      continue;
    }
    const int64_t label = map.classes.empty() ? -1 : map.classes[i];
    const size_t group = label >= 0 && label < static_cast<int64_t>(map.class_names.size())
                             ? static_cast<size_t>(label)
                             : map.class_names.size();
    const double x = half_w + (map.x[i] - mid_x) * scale, y = half_h - (map.y[i] - mid_y) * scale;
    dots[group] += fmt::format("M{} {}h0", units(x), units(y));
    ++members[group];
    nlohmann::json point{std::lround(x), std::lround(y), group};
    if (!map.notes.empty()) point.push_back(map.notes[i]);
    points.push_back(point);
  }
  std::string layers, legend;
  for (size_t g = 0; g < dots.size(); ++g) {
    if (dots[g].empty()) continue;
    const bool none = g == map.class_names.size();
    const std::string colour = none ? "none" : fmt::format("c{}", colour_index(static_cast<int64_t>(g)));
    layers += fmt::format("<path class=\"dots {}\" d=\"{}\"/>", colour, dots[g]);
    legend += fmt::format(
        "<li class=\"{}\"><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><path class=\"dots "
        "{}\" "
        "d=\"M5 5h0\"/></svg>{}</li>",
        colour, colour, none ? "no label" : escape(map.class_names[g]));
  }
  std::string style;
  if (!map.sprite.empty() && map.tile_width > 0 && map.tile_height > 0 && map.sprite_columns > 0) {
    style = fmt::format(" data-tile=\"{},{},{}\"", map.tile_width, map.tile_height, map.sprite_columns);
  }
  out += fmt::format(
      "<div class=\"area\" tabindex=\"0\" role=\"img\" aria-label=\"{}\"{} style=\"aspect-ratio:{}/{}\"><svg "
      "viewBox=\"0 0 {} {}\" aria-hidden=\"true\">{}</svg></div>",
      escape(fmt::format("Map of {} points: {}", n, map.title)), style, units(2 * half_w), units(2 * half_h),
      units(2 * half_w), units(2 * half_h), layers);
  if (!legend.empty()) out += "<ul class=\"legend\">" + legend + "</ul>";
  if (!style.empty()) {
    out += fmt::format("<img class=\"sprite\" alt=\"\" hidden src=\"{}\">", data_address(map.sprite));
  }
  nlohmann::json names = map.class_names;
  names.push_back("no label");
  out += fmt::format("<script type=\"application/json\">{}</script></figure>\n",
                     dump({{"w", 2 * half_w}, {"h", 2 * half_h}, {"points", points}, {"names", names}}));
  return out;
}

}  // namespace ebclr::report
