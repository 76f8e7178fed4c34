#pragma once
// Reading what may be anything: never blocks on a pipe, never reads a device, never more than a limit.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ebclr::image {

/// What identifies a file's content without reading it.
struct FileStamp {
  uint64_t size = 0;
  int64_t modified = 0;  ///< nanoseconds since 1970
  bool operator==(const FileStamp&) const = default;
};

/// Largest file that is read.
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;

/// The whole file if it is a regular one of at most kMaxFileBytes; throws Error otherwise. `limit`: only that
/// many bytes from its start.
std::vector<std::byte> read_regular(const std::filesystem::path& path, uint64_t limit = kMaxFileBytes,
                                    FileStamp* stamp = nullptr);

}  // namespace ebclr::image
