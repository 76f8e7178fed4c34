#pragma once
// The plain convolutions: what every fast kernel is compared with, and the last of each list of
// implementations. Images are planar here: [n][channels][height][width].

#include <vector>

namespace ebclr::cpu::reference {

/// Shape of a square convolution, with padding kernel / 2 unless told otherwise.
struct Shape {
  int images = 1, in = 1, out = 1, height = 1, width = 1, kernel = 3, stride = 1;
  int padding = -1;
  int pad() const { return padding < 0 ? kernel / 2 : padding; }
  int out_height() const { return (height + 2 * pad() - kernel) / stride + 1; }
  int out_width() const { return (width + 2 * pad() - kernel) / stride + 1; }
};

/// y [images][out][out_height][out_width]; bias may be empty.
std::vector<double> forward(const Shape& s, const std::vector<double>& x, const std::vector<double>& w,
                            const std::vector<double>& bias);
/// Gradient to x.
std::vector<double> data_grad(const Shape& s, const std::vector<double>& g, const std::vector<double>& w);
/// Gradient to w [out][in][kernel][kernel].
std::vector<double> weight_grad(const Shape& s, const std::vector<double>& x, const std::vector<double>& g);

}  // namespace ebclr::cpu::reference
