#pragma once
// Raster charts as PNG: lines, histograms, confusion matrices, maps of points, grids of images.
// Knows numbers and pictures only; what they mean is the caller's business.

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebclr::plot {

/// A finished picture, 8-bit RGB rows from top to bottom.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgb;  ///< width * height * 3
};

/// The picture as a PNG file in memory (to embed in a page).
std::vector<std::byte> encode_png(const Image& image);
/// Throws Error unless the name ends in .png.
void check_png_name(const std::filesystem::path& path);
/// Writes a PNG atomically; creates the folder when it is missing.
void write_png(const std::filesystem::path& path, const Image& image);

/// One named line of a chart; points that are not finite interrupt it.
struct Series {
  std::string name;
  std::vector<double> x = {}, y = {};
  std::vector<double> low = {}, high = {};  ///< optional band around y, both empty or as long as y
  bool dashed = false;
  bool markers = false;
};

/// Looks shared by the charts with axes; width and height in points (a PNG has twice as many pixels).
struct ChartOptions {
  std::string title = {}, x_label = {}, y_label = {};
  int width = 720, height = 440;
  std::optional<double> y_min = {}, y_max = {};  ///< fixed ends instead of those of the data
  bool log_x = false, log_y = false;             ///< points at or below zero are left out
};

/// Lines with optional bands, a light grid and a legend below.
Image line_chart(const std::vector<Series>& series, const ChartOptions& options = {});

/// Values of one group of a histogram.
struct Sample {
  std::string name;
  std::vector<double> values;
};

/// Overlaid histograms over one set of bins, each normalised to its own count (density of the group).
Image histogram(const std::vector<Sample>& samples, int bins = 40, const ChartOptions& options = {});

/// Heat map of counts, int64 [C, C] (row: truth, column: prediction), shaded by each row's share; numbers
/// are written into the cells as long as they fit.
Image confusion_matrix(const torch::Tensor& counts, const std::vector<std::string>& class_names,
                       const std::string& title = "");

/// Points float [N, 2] coloured by labels int64 [N] (negative: grey) with a legend of the classes.
Image scatter_map(const torch::Tensor& points, const torch::Tensor& labels,
                  const std::vector<std::string>& class_names, const ChartOptions& options = {});

/// Points float [N, 2] as thumbnails of their images (uint8 [N, C, H, W] or float in [-1, 1]): where they
/// would overlap, the one nearest to the middle of its place is drawn and the others are dots below.
Image thumbnail_map(const torch::Tensor& points, const torch::Tensor& images,
                    const ChartOptions& options = {});

/// A sheet of images.
struct GridOptions {
  int columns = 8;
  int scale = 2;                               ///< each pixel this many times enlarged
  std::vector<std::string> captions = {};      ///< below each image, shortened in the middle to its width
  std::vector<std::string> column_heads = {};  ///< above each column
  std::vector<std::string> row_heads = {};     ///< left of each row, up to 120 points wide
  std::string title = {};                      ///< wrapped to the width of the sheet
};

/// A grid of images, row by row: float [N, C, H, W] in [-1, 1] (clamped) or uint8, C 1 or 3.
Image image_grid(const torch::Tensor& images, const GridOptions& options);
/// The same with captions and a title only.
Image image_grid(const torch::Tensor& images, int columns, int scale = 2,
                 const std::vector<std::string>& captions = {}, const std::string& title = "");

/// Pictures side by side on a white ground, aligned at the top.
Image side_by_side(const std::vector<Image>& images);

/// Colour of the k-th series or class, RGB; distinct for the first ten, well spread after.
std::array<uint8_t, 3> colour(int64_t k);

}  // namespace ebclr::plot
