#include "eval/curve.h"

#include <algorithm>

#include "core/error.h"

namespace ebclr::eval {

Efficiency relative_efficiency(std::vector<CurvePoint> reference, std::vector<CurvePoint> other) {
  if (reference.empty() || other.empty()) {
    core::usage_error("eval.curve", "a curve without points cannot be compared; run: ebclr eval curve RUN");
  }
  const auto by_epoch = [](const CurvePoint& a, const CurvePoint& b) { return a.epoch < b.epoch; };
  std::stable_sort(reference.begin(), reference.end(), by_epoch);
  std::stable_sort(other.begin(), other.end(), by_epoch);
  const CurvePoint& last = other.back();
  Efficiency e;
  e.target = last.accuracy;
  const auto hit = std::find_if(reference.begin(), reference.end(),
                                [&](const CurvePoint& p) { return p.accuracy >= e.target; });
  if (hit == reference.end()) return e;
  e.reached = *hit;
  if (last.epoch > 0) e.epochs = hit->epoch / last.epoch;
  if (last.seconds > 0) e.seconds = hit->seconds / last.seconds;
  if (last.forward_units > 0) e.forward_units = hit->forward_units / last.forward_units;
  return e;
}

}  // namespace ebclr::eval
