#pragma once

#include "plot/canvas.h"
#include "plot/plot.h"

namespace ebclr::plot {

/// The canvas as a finished picture.
inline Image finish(const Canvas& canvas) {
  auto pixels = canvas.finish();
  return {pixels.width, pixels.height, std::move(pixels.data)};
}

}  // namespace ebclr::plot
