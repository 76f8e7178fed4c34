#pragma once

#include <torch/types.h>

#include <vector>

#include "image/pixels.h"

namespace ebclr::plot {

/// Images [N, C, H, W], uint8 or float in [-1, 1], as pictures.
std::vector<image::Pixels> pictures_of(const torch::Tensor& images);

}  // namespace ebclr::plot
