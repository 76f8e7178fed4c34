#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "image/resize.h"
#include "plot/finish.h"
#include "plot/pictures.h"

namespace ebclr::plot {

Image thumbnail_map(const torch::Tensor& points, const torch::Tensor& images, const ChartOptions& options) {
  if (!points.defined() || points.dim() != 2 || points.size(1) != 2 || points.size(0) == 0 ||
      !images.defined() || images.dim() != 4 || images.size(0) != points.size(0))
    core::usage_error("plot", "a map of thumbnails needs points [N, 2] and as many images [N, C, H, W]");
  const auto xy = points.to(torch::kCPU, torch::kFloat64).contiguous();
  const double* p = xy.data_ptr<double>();
  const int64_t n = xy.size(0);
  double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
  const auto finite = [&](int64_t i) { return std::isfinite(p[2 * i]) && std::isfinite(p[2 * i + 1]); };
  for (int64_t i = 0; i < n; ++i)
    for (int k = 0; finite(i) && k < 2; ++k) {
      low[k] = std::min(low[k], p[2 * i + k]);
      high[k] = std::max(high[k], p[2 * i + k]);
    }
  Canvas canvas(options.width, options.height);
  const double top = options.title.empty() ? 14 : 36, left = 16, right = options.width - 16.0,
               bottom = options.height - 14.0;
  canvas.rectangle({left, top}, {right, bottom}, kEmpty);
  canvas.text(Canvas::fit(options.title, options.width - 32, 9.5, true), {left, 18}, 9.5, Align::kLeft, kInk,
              true);
  if (low[0] > high[0]) return finish(canvas);
  // Few images are drawn large; from some hundred on the places are 28 points wide.
  const double cell = std::clamp(420 / std::sqrt(static_cast<double>(n)), 28.0, 72.0);
  const double scale = std::min((right - left - cell - 8) / std::max(high[0] - low[0], 1e-12),
                                (bottom - top - cell - 8) / std::max(high[1] - low[1], 1e-12));
  const auto place = [&](int64_t i) {
    return Point{(left + right) / 2 + (p[2 * i] - (low[0] + high[0]) / 2) * scale,
                 (top + bottom) / 2 - (p[2 * i + 1] - (low[1] + high[1]) / 2) * scale};
  };
  std::map<std::pair<int, int>, std::pair<double, int64_t>> nearest;  // of each place: distance, image
  for (int64_t i = 0; i < n; ++i) {
    if (!finite(i)) continue;
    const Point at = place(i);
    canvas.disc(at, 1.4, {190, 194, 200});
    const std::pair<int, int> key{static_cast<int>(std::floor(at.x / cell)),
                                  static_cast<int>(std::floor(at.y / cell))};
    const double away = std::hypot(at.x / cell - key.first - 0.5, at.y / cell - key.second - 0.5);
    const auto [it, fresh] = nearest.try_emplace(key, away, i);
    if (!fresh && away < it->second.first) it->second = {away, i};
  }
  const double size = cell - 3;
  for (const auto& [key, best] : nearest) {
    const auto picture = pictures_of(images.slice(0, best.second, best.second + 1))[0];
    const int side = static_cast<int>(std::lround(size * 2));
    const auto small = image::resize(picture, image::centre_square(picture), side, side);
    const Point corner{(key.first + 0.5) * cell - size / 2, (key.second + 0.5) * cell - size / 2};
    canvas.picture(small, corner);
  }
  return finish(canvas);
}

}  // namespace ebclr::plot
