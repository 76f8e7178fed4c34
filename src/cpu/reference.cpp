#include "cpu/reference.h"

#include <cstddef>

namespace ebclr::cpu::reference {
namespace {

/// Calls body(x index, w index, y index) for every product of the convolution.
template <class Body>
void for_each_product(const Shape& s, const Body& body) {
  const int pad = s.pad(), oh = s.out_height(), ow = s.out_width();
  for (int n = 0; n < s.images; ++n) {
    for (int o = 0; o < s.out; ++o) {
      for (int y = 0; y < oh; ++y) {
        for (int x = 0; x < ow; ++x) {
          const std::size_t at_y = ((std::size_t(n) * s.out + o) * oh + y) * ow + x;
          for (int i = 0; i < s.in; ++i) {
            for (int ky = 0; ky < s.kernel; ++ky) {
              for (int kx = 0; kx < s.kernel; ++kx) {
                const int row = y * s.stride + ky - pad, col = x * s.stride + kx - pad;
                if (row < 0 || col < 0 || row >= s.height || col >= s.width) continue;
                const std::size_t at_x = ((std::size_t(n) * s.in + i) * s.height + row) * s.width + col;
                const std::size_t at_w = ((std::size_t(o) * s.in + i) * s.kernel + ky) * s.kernel + kx;
                body(at_x, at_w, at_y);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<double> forward(const Shape& s, const std::vector<double>& x, const std::vector<double>& w,
                            const std::vector<double>& bias) {
  const std::size_t pixels = std::size_t(s.out_height()) * s.out_width();
  std::vector<double> y(s.images * s.out * pixels);
  if (!bias.empty()) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = bias[i / pixels % s.out];
  }
  for_each_product(s, [&](auto at_x, auto at_w, auto at_y) { y[at_y] += x[at_x] * w[at_w]; });
  return y;
}

std::vector<double> data_grad(const Shape& s, const std::vector<double>& g, const std::vector<double>& w) {
  std::vector<double> dx(std::size_t(s.images) * s.in * s.height * s.width);
  for_each_product(s, [&](auto at_x, auto at_w, auto at_y) { dx[at_x] += g[at_y] * w[at_w]; });
  return dx;
}

std::vector<double> weight_grad(const Shape& s, const std::vector<double>& x, const std::vector<double>& g) {
  std::vector<double> dw(std::size_t(s.out) * s.in * s.kernel * s.kernel);
  for_each_product(s, [&](auto at_x, auto at_w, auto at_y) { dw[at_w] += x[at_x] * g[at_y]; });
  return dw;
}

}  // namespace ebclr::cpu::reference
