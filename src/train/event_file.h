#pragma once
// An event file as TensorBoard reads it: records of the public event.proto in TFRecord framing. The few
// messages that are needed are written by hand; tests/train decodes them with protobuf.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files.h"

namespace ebclr::train {

class EventFile {
 public:
  /// Makes a new file in a folder, named after time, host and process as TensorBoard expects it.
  explicit EventFile(const std::filesystem::path& folder);

  /// Numbers of one step.
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  /// A PNG.
  void picture(int64_t step, const std::string& tag, int width, int height, std::span<const std::byte> png);
  /// Steps from this one on that were written before, here or in an older file, no longer count.
  void restart(int64_t step);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write(int64_t step, int field, std::string_view message);

  std::filesystem::path path_;
  std::unique_ptr<core::AppendFile> file_;
};

/// CRC-32C (Castagnoli) of bytes.
uint32_t crc32c(std::string_view bytes);

}  // namespace ebclr::train
