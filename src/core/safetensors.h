#pragma once
// The safetensors format: a JSON header and raw little-endian tensors. Bounds-checked, no code in files.

#include <torch/types.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace ebclr::core {

/// Named tensors and string metadata of one file. Names sort, so that equal content gives equal bytes.
struct SafeTensors {
  std::map<std::string, torch::Tensor> tensors;
  std::map<std::string, std::string> metadata;

  /// The tensor of that name; throws Error naming `where` when it is absent.
  const torch::Tensor& at(const std::string& name, std::string_view where) const;
};

/// Reads a file; throws Error naming file, offset and expectation on anything malformed.
SafeTensors read_safetensors(const std::filesystem::path& path);
/// The same from memory; `name` stands for the file in errors.
SafeTensors parse_safetensors(std::span<const std::byte> bytes, std::string_view name);
/// The string metadata alone; reads the header only.
std::map<std::string, std::string> read_safetensors_metadata(const std::filesystem::path& path);
/// The bytes of a file.
std::string to_bytes(const SafeTensors& content);
/// Writes atomically.
void write_safetensors(const std::filesystem::path& path, const SafeTensors& content);

}  // namespace ebclr::core
