#pragma once
// NumPy's .npy (versions 1 to 3, C order, little endian) to and from torch tensors. No pickle: object
// arrays are refused.

#include <torch/types.h>

#include <filesystem>
#include <span>
#include <string_view>

namespace ebclr::core {

/// Reads one array; throws Error naming file, offset and expectation on anything malformed.
torch::Tensor read_npy(const std::filesystem::path& path);
/// The same from memory; `name` stands for the file in errors.
torch::Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name);
/// Writes one tensor (any device, any strides) atomically.
void write_npy(const std::filesystem::path& path, const torch::Tensor& tensor);

}  // namespace ebclr::core
