#pragma once

#include "run/config.h"

namespace ebclr::run {

/// Translates a configuration of the paper's released code, for EBCLR and the four rivals. Keys without an
/// equivalent become warnings; spectral and weight norm are errors.
Layer translate_legacy(const std::string& yaml, const std::string& origin,
                       std::vector<std::string>& warnings);

}  // namespace ebclr::run
