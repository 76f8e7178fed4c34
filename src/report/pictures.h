#pragma once
// Pictures made small enough to travel inside a page.

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace ebclr::report {

/// A picture file (PNG, JPEG, ...) as JPEG, shrunk to at most `width` pixels across; throws Error naming
/// `name` when it cannot be read.
std::vector<std::byte> shrink(const std::vector<std::byte>& file, int width, const std::string& name);

/// All images uint8 [N, C, H, W] in rows of `columns`, each `side` pixels wide and high, as JPEG.
std::vector<std::byte> sprite(const torch::Tensor& images, int columns, int side);

}  // namespace ebclr::report
