#pragma once
// Compressed files and archives, streamed with bounds.

#include <filesystem>
#include <map>
#include <string>

namespace ebclr::data {

/// Decompresses a gzip file to `target`, which appears only when complete. More than `limit` bytes is an
/// error.
void gunzip(const std::filesystem::path& source, const std::filesystem::path& target, uint64_t limit);

/// Writes members of a .tar.gz whose last path component is a key of `wanted` to the path there; others are
/// skipped. Throws when one is missing, larger than `limit`, or the archive is damaged.
void extract(const std::filesystem::path& archive, const std::map<std::string, std::filesystem::path>& wanted,
             uint64_t limit);

}  // namespace ebclr::data
