#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "image/encode.h"
#include "plot/finish.h"
#include "plot/pictures.h"

namespace ebclr::plot {

std::vector<image::Pixels> pictures_of(const torch::Tensor& images) {
  torch::Tensor pixels = images.detach().to(torch::kCPU);
  if (pixels.scalar_type() != torch::kUInt8)
    pixels =
        ((pixels.to(torch::kFloat32).nan_to_num(0.0) + 1) * 127.5).round().clamp(0, 255).to(torch::kUInt8);
  pixels = pixels.permute({0, 2, 3, 1}).contiguous();  // [N, H, W, C]
  std::vector<image::Pixels> out;
  for (int64_t i = 0; i < pixels.size(0); ++i) {
    image::Pixels p(static_cast<int>(pixels.size(2)), static_cast<int>(pixels.size(1)),
                    static_cast<int>(pixels.size(3)));
    std::copy_n(pixels.data_ptr<uint8_t>() + i * static_cast<int64_t>(p.data.size()), p.data.size(),
                p.data.begin());
    out.push_back(std::move(p));
  }
  return out;
}

namespace {

image::Pixels enlarged(const image::Pixels& from, int scale) {
  image::Pixels out(from.width * scale, from.height * scale, from.channels);
  for (int y = 0; y < out.height; ++y)
    for (int x = 0; x < out.width; ++x)
      std::copy_n(from.row(y / scale) + static_cast<size_t>(x / scale) * static_cast<size_t>(from.channels),
                  from.channels, out.row(y) + static_cast<size_t>(x) * static_cast<size_t>(from.channels));
  return out;
}

}  // namespace

Image image_grid(const torch::Tensor& images, const GridOptions& o) {
  if (!images.defined() || images.dim() != 4 || images.size(0) == 0 ||
      (images.size(1) != 1 && images.size(1) != 3))
    core::usage_error("plot", "a grid needs images [N, C, H, W] with at least one image and C 1 or 3");
  if (o.columns < 1 || o.scale < 1)
    core::usage_error("plot", fmt::format("a grid of {} columns at scale {} cannot be drawn; use 1 or more",
                                          o.columns, o.scale));
  const auto pictures = pictures_of(images);
  const int n = static_cast<int>(pictures.size()), columns = std::min(o.columns, n),
            rows = (n + columns - 1) / columns;
  const int width = pictures[0].width * o.scale, height = pictures[0].height * o.scale;
  // In pixels, two to a point, so that images keep theirs.
  constexpr int kGap = 4, kMargin = 12, kCaption = 22, kHead = 24, kTitleLine = 26;
  constexpr double kTitleSize = 8, kSmall = 5;
  double row_head = 0;
  for (const auto& h : o.row_heads) row_head = std::max(row_head, Canvas::text_width(h, kSmall));
  const int left = kMargin + (row_head > 0 ? static_cast<int>(std::min(row_head, 120.0) * 2) + 16 : 0);
  const int across = columns * width + (columns - 1) * kGap;
  // A narrow sheet grows so that its heading is readable.
  const int content = std::max(left - kMargin + across, o.title.empty() ? 0 : 320);
  const auto title = Canvas::wrap(o.title, content / 2.0, kTitleSize, true);
  const int caption = o.captions.empty() ? 0 : kCaption, head = o.column_heads.empty() ? 0 : kHead;
  const int top = kMargin + (title.empty() ? 0 : static_cast<int>(title.size()) * kTitleLine + 8) + head;
  Canvas canvas((2 * kMargin + content) / 2.0,
                (top + rows * (height + caption) + (rows - 1) * kGap + kMargin) / 2.0);
  for (size_t i = 0; i < title.size(); ++i)
    canvas.text(title[i], {kMargin / 2.0, (kMargin + (static_cast<double>(i) + 0.5) * kTitleLine) / 2},
                kTitleSize, Align::kLeft, kInk, true);
  const auto x_of = [&](int column) { return left + column * (width + kGap); };
  const auto y_of = [&](int row) { return top + row * (height + caption + kGap); };
  for (int c = 0; c < std::min<int>(columns, static_cast<int>(o.column_heads.size())); ++c)
    canvas.text(Canvas::fit(o.column_heads[static_cast<size_t>(c)], (width + kGap) / 2.0, kSmall),
                {(x_of(c) + width / 2.0) / 2, (top - head / 2.0) / 2}, kSmall, Align::kCentre, kSoftInk);
  for (int r = 0; r < std::min<int>(rows, static_cast<int>(o.row_heads.size())); ++r)
    canvas.text(Canvas::fit_middle(o.row_heads[static_cast<size_t>(r)], 120, kSmall),
                {kMargin / 2.0, (y_of(r) + height / 2.0) / 2}, kSmall, Align::kLeft, kSoftInk);
  for (int i = 0; i < n; ++i) {
    const int x = x_of(i % columns), y = y_of(i / columns);
    canvas.picture(enlarged(pictures[static_cast<size_t>(i)], o.scale), {x / 2.0, y / 2.0});
    if (i < static_cast<int>(o.captions.size()))
      canvas.text(Canvas::fit_middle(o.captions[static_cast<size_t>(i)], width / 2.0, kSmall),
                  {(x + width / 2.0) / 2, (y + height + caption / 2.0) / 2}, kSmall, Align::kCentre,
                  kSoftInk);
  }
  return finish(canvas);
}

Image image_grid(const torch::Tensor& images, int columns, int scale,
                 const std::vector<std::string>& captions, const std::string& title) {
  return image_grid(images,
                    GridOptions{.columns = columns, .scale = scale, .captions = captions, .title = title});
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

std::vector<std::byte> encode_png(const Image& image) {
  if (image.width <= 0 || image.height <= 0 || image.rgb.size() != size_t(image.width) * image.height * 3)
    core::usage_error("plot", "cannot encode an empty picture; draw something first");
  image::Pixels pixels;
  pixels.width = image.width;
  pixels.height = image.height;
  pixels.data = image.rgb;
  return image::encode_png(pixels);
}

void check_png_name(const std::filesystem::path& path) {
  if (path.extension() != ".png" && path.extension() != ".PNG")
    core::usage_error("plot", fmt::format("{}: pictures are written as PNG; choose a name that ends in .png",
                                          path.string()));
}

void write_png(const std::filesystem::path& path, const Image& image) {
  check_png_name(path);
  const auto bytes = encode_png(image);
  core::AtomicFile file(path, "plot");
  file.write(bytes);
  file.commit();
}

}  // namespace ebclr::plot
