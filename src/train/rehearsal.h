#pragma once
// A few steps on noise, to know what a step costs before any image is there.

#include <vector>

#include "engine/engine.h"
#include "run/config.h"

namespace ebclr::train {

struct Rehearsal {
  double seconds = 0;          ///< of a step: views, optimizer and logs are not in it
  double units_per_image = 0;  ///< forward-units of an image in it
};

/// Steps of the configured method and batch on noise of this shape, {C, H, W}.
Rehearsal rehearse(const run::Config& config, const std::vector<int64_t>& image_shape,
                   const engine::Placement& placement);

}  // namespace ebclr::train
