#pragma once

#include <string>

#include "data/catalog.h"

namespace ebclr::data {

/// How to load the set `name` where `own` describes a run's images. An empty name or the own one gives `own`.
/// For another set, what was said of the own images does not apply: limits, labels, grey, the share of test
/// images. Folders and shapes are read at the own images' size, sets with a size of their own as they are.
SourceOptions other_set(const SourceOptions& own, const std::string& name);

}  // namespace ebclr::data
