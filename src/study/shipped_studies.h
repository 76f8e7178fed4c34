#pragma once

#include <vector>

#include "run/shipped.h"

namespace ebclr::study {

/// The files of studies/, by name without .yaml.
const std::vector<run::ShippedConfig>& shipped_studies();

}  // namespace ebclr::study
