#pragma once
// The statistics of verdicts: Student's t, and a correction for several comparisons at once.

#include <vector>

namespace ebclr::study {

/// 97.5 % quantile of Student's t distribution; that of one degree below one.
double student_t(int degrees);

/// P(T > t) for Student's t distribution with this many degrees of freedom, one or more.
double student_tail(double t, int degrees);

/// p-values adjusted by Holm's step-down method: comparing each with a level keeps the chance of even one
/// false rejection among all of them below that level.
std::vector<double> holm(const std::vector<double>& p);

}  // namespace ebclr::study
