#pragma once
// The statistics of verdicts: Student's t, Fisher's F, and a correction for several comparisons at once.

#include <vector>

namespace ebclr::study {

/// 97.5 % quantile of Student's t distribution; that of one degree below one.
double student_t(double degrees);

/// P(T > t) for Student's t distribution with this many degrees of freedom, one or more.
double student_tail(double t, double degrees);

/// P(F > f) for Fisher's distribution of the ratio of two variances.
double f_tail(double f, double degrees_above, double degrees_below);

/// p-values adjusted by Holm's step-down method: comparing each with a level keeps the chance of even one
/// false rejection among all of them below that level.
std::vector<double> holm(const std::vector<double>& p);

}  // namespace ebclr::study
