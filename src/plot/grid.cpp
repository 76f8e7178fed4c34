#include <fmt/format.h>

#include <algorithm>
#include <opencv2/imgproc.hpp>

#include "core/error.h"
#include "plot/canvas.h"
#include "plot/plot.h"

namespace ebclr::plot {

Image image_grid(const torch::Tensor& images, int columns, int scale,
                 const std::vector<std::string>& captions, const std::string& title) {
  if (!images.defined() || images.dim() != 4 || images.size(0) == 0 ||
      (images.size(1) != 1 && images.size(1) != 3)) {
    core::usage_error("plot", "a grid needs images [N, C, H, W] with at least one image and C 1 or 3");
  }
  if (columns < 1 || scale < 1) {
    core::usage_error("plot", fmt::format("a grid of {} columns at scale {} cannot be drawn; use 1 or more",
                                          columns, scale));
  }
  torch::Tensor pixels = images.detach().to(torch::kCPU);
  if (pixels.scalar_type() != torch::kUInt8) {
    pixels =
        ((pixels.to(torch::kFloat32).nan_to_num(0.0) + 1) * 127.5).round().clamp(0, 255).to(torch::kUInt8);
  }
  if (pixels.size(1) == 1) pixels = pixels.expand({-1, 3, -1, -1});
  pixels = pixels.permute({0, 2, 3, 1}).contiguous();  // [N, H, W, 3]
  const int n = static_cast<int>(pixels.size(0)), height = static_cast<int>(pixels.size(1)) * scale,
            width = static_cast<int>(pixels.size(2)) * scale;
  columns = std::min(columns, n);
  const int rows = (n + columns - 1) / columns;
  constexpr int kGap = 4, kMargin = 12, kCaption = 22, kTitle = 40;
  const int caption = captions.empty() ? 0 : kCaption, head = title.empty() ? 0 : kTitle;

  cv::Mat sheet(2 * kMargin + head + rows * (height + caption) + (rows - 1) * kGap,
                2 * kMargin + columns * width + (columns - 1) * kGap, CV_8UC3, cv::Scalar(255, 255, 255));
  // Text is drawn by a canvas of the same size in points (two pixels each) and laid under the images.
  if (caption || head) {
    Canvas canvas(sheet.cols / 2.0, sheet.rows / 2.0);
    canvas.text(Canvas::fit(title, (sheet.cols - 2 * kMargin) / 2.0, 8),
                {kMargin / 2.0, (kMargin + head / 2.0) / 2 - 2}, 8, Align::kLeft, kInk, true);
    for (int i = 0; i < std::min<int>(n, static_cast<int>(captions.size())); ++i) {
      const double x = kMargin + (i % columns) * (width + kGap) + width / 2.0;
      const double y = kMargin + head + (i / columns) * (height + caption + kGap) + height + caption / 2.0;
      canvas.text(Canvas::fit(captions[i], width / 2.0, 5), {x / 2, y / 2}, 5, Align::kCentre, kSoftInk);
    }
    const Image under = canvas.finish();
    const cv::Mat ground(under.height, under.width, CV_8UC3, const_cast<uint8_t*>(under.rgb.data()));
    const cv::Rect common(0, 0, std::min(ground.cols, sheet.cols), std::min(ground.rows, sheet.rows));
    ground(common).copyTo(sheet(common));
  }
  for (int i = 0; i < n; ++i) {
    const cv::Mat source(static_cast<int>(pixels.size(1)), static_cast<int>(pixels.size(2)), CV_8UC3,
                         pixels[i].data_ptr<uint8_t>());
    const cv::Rect place(kMargin + (i % columns) * (width + kGap),
                         kMargin + head + (i / columns) * (height + caption + kGap), width, height);
    cv::Mat target = sheet(place);
    cv::resize(source, target, target.size(), 0, 0, cv::INTER_NEAREST);
  }
  Image image{sheet.cols, sheet.rows, {}};
  image.rgb.assign(sheet.data, sheet.data + sheet.total() * 3);
  return image;
}

Image side_by_side(const std::vector<Image>& images) {
  Image out;
  for (const auto& i : images) {
    out.width += i.width;
    out.height = std::max(out.height, i.height);
  }
  out.rgb.assign(size_t(out.width) * out.height * 3, 255);
  size_t left = 0;
  for (const auto& i : images) {
    for (int y = 0; y < i.height; ++y) {
      std::copy_n(i.rgb.begin() + size_t(y) * i.width * 3, size_t(i.width) * 3,
                  out.rgb.begin() + (size_t(y) * out.width + left) * 3);
    }
    left += i.width;
  }
  return out;
}

}  // namespace ebclr::plot
