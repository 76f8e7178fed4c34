#pragma once
// Accuracy against what it cost, and the paper's relative efficiency between two such curves.

#include <optional>
#include <vector>

namespace ebclr::eval {

/// One evaluated checkpoint.
struct CurvePoint {
  double epoch = 0;
  double seconds = 0;        ///< of training until then, evaluation excluded
  double forward_units = 0;  ///< forward passes of one image, backward passes converted
  double accuracy = 0;
};

/// What a reference needed to reach another method's final accuracy, as a part of what that method spent in
/// all. Empty where the reference never got there, or where the other spent nothing that can be divided by.
struct Efficiency {
  double target = 0;                  ///< the other method's final accuracy
  std::optional<CurvePoint> reached;  ///< first point of the reference at or above it
  std::optional<double> epochs, seconds, forward_units;
};

/// Relative efficiency of `other` against `reference` (EBCLR in the paper). As there, a reference counts from
/// the first kept checkpoint that reaches the target: nothing is interpolated. Points may come in any order.
Efficiency relative_efficiency(std::vector<CurvePoint> reference, std::vector<CurvePoint> other);

}  // namespace ebclr::eval
