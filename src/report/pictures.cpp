#include "report/pictures.h"

#include <fmt/format.h>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "core/error.h"

namespace ebclr::report {
namespace {

std::vector<std::byte> jpeg(const cv::Mat& bgr, int quality) {
  std::vector<uchar> out;
  cv::imencode(".jpg", bgr, out, {cv::IMWRITE_JPEG_QUALITY, quality, cv::IMWRITE_JPEG_OPTIMIZE, 1});
  const auto* first = reinterpret_cast<const std::byte*>(out.data());
  return {first, first + out.size()};
}

}  // namespace

std::vector<std::byte> shrink(const std::vector<std::byte>& file, int width, const std::string& name) {
  cv::Mat picture;
  try {
    if (!file.empty()) {
      const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8U, const_cast<std::byte*>(file.data()));
      picture = cv::imdecode(bytes, cv::IMREAD_COLOR);
    }
  } catch (const cv::Exception&) {  // said below
  }
  if (picture.empty()) core::usage_error("report", fmt::format("{}: not a picture that can be read", name));
  if (picture.cols > width) {
    const int height = std::max(1, static_cast<int>(int64_t{picture.rows} * width / picture.cols));
    cv::Mat small;
    cv::resize(picture, small, {width, height}, 0, 0, cv::INTER_AREA);
    picture = small;
  }
  return jpeg(picture, 88);
}

std::vector<std::byte> sprite(const torch::Tensor& images, int columns, int side) {
  if (!images.defined() || images.dim() != 4 || images.size(0) == 0 ||
      images.scalar_type() != torch::kUInt8 || (images.size(1) != 1 && images.size(1) != 3) || columns < 1 ||
      side < 1)
    core::usage_error("report", "a sprite needs images uint8 [N, C, H, W] with C 1 or 3");
  const auto pixels =
      images.to(torch::kCPU).expand({-1, 3, -1, -1}).flip(1).permute({0, 2, 3, 1}).contiguous();
  const int n = static_cast<int>(pixels.size(0)), rows = (n + columns - 1) / columns;
  const int height = static_cast<int>(pixels.size(1)), width = static_cast<int>(pixels.size(2));
  cv::Mat sheet(rows * side, columns * side, CV_8UC3, cv::Scalar(255, 255, 255));
  for (int i = 0; i < n; ++i) {
    const cv::Mat source(height, width, CV_8UC3, pixels[i].data_ptr<uint8_t>());
    cv::Mat target = sheet(cv::Rect(i % columns * side, i / columns * side, side, side));
    cv::resize(source, target, target.size(), 0, 0, width > side ? cv::INTER_AREA : cv::INTER_LINEAR);
  }
  return jpeg(sheet, 85);
}

}  // namespace ebclr::report
