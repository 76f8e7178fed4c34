#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ebclr::study {
namespace {

// Continued fraction of the incomplete beta function (Lentz's method).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < kTiny ? kTiny : d);
  double h = d;
  for (int m = 1; m <= 300; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    for (const double term : {even, odd}) {
      d = 1 + term * d;
      d = 1 / (std::abs(d) < kTiny ? kTiny : d);
      c = 1 + term / c;
      if (std::abs(c) < kTiny) c = kTiny;
      h *= d * c;
    }
    if (std::abs(d * c - 1) < 1e-14) break;
  }
  return h;
}

// Regularised incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double student_t(double degrees) {
  double low = 0, high = 16;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle, degrees) > 0.025 ? low : high) = middle;
  }
  return high;
}

double student_tail(double t, double degrees) {
  if (std::isinf(t)) return t > 0 ? 0 : 1;
  const double n = std::max(1.0, degrees);
  const double half = 0.5 * incomplete_beta(n / 2, 0.5, n / (n + t * t));
  return t > 0 ? half : 1 - half;
}

double f_tail(double f, double above, double below) {
  if (!(f > 0)) return 1;
  return incomplete_beta(below / 2, above / 2, below / (below + above * f));
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> out(p.size());
  double worst = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    worst = std::max(worst, std::min(1.0, p[order[i]] * static_cast<double>(p.size() - i)));
    out[order[i]] = worst;
  }
  return out;
}

}  // namespace ebclr::study
