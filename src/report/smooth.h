#pragma once
// Series of a run as lines to look at.

#include <string>

#include "plot/plot.h"
#include "run/metrics.h"

namespace ebclr::report {

/// A line to look at: up to `groups` means of neighbours, with the range of each group as a band. Few points
/// are returned as they are, with markers when they are very few.
plot::Series smooth(const std::string& name, const run::MetricSeries& series, size_t groups = 150);

}  // namespace ebclr::report
