#pragma once
// Small file helpers: whole-file reads with limits, atomic writes, checksums.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::core {

/// The whole file as bytes; `component` names the caller in errors.
std::vector<std::byte> read_bytes(const std::filesystem::path& path, std::string_view component);
/// The whole file as text.
std::string read_text(const std::filesystem::path& path, std::string_view component);

/// A file that appears under its name only when it is complete: written beside it under a temporary name,
/// synced, renamed, and the folder synced. Destroyed without commit() it leaves nothing.
class AtomicFile {
 public:
  AtomicFile(std::filesystem::path path, std::string_view component);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends; a full disk throws and names the file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Makes the file visible under its final name.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::string component_;
  int fd_ = -1;
};

/// Writes a whole file atomically.
void write_atomically(const std::filesystem::path& path, std::string_view text, std::string_view component);

/// Lower-case hex SHA-256 of bytes or of a file (streamed).
std::string sha256(std::span<const std::byte> bytes);
std::string sha256_file(const std::filesystem::path& path, std::string_view component);

/// "1.2 GB", "340 kB".
std::string human_bytes(double bytes);

}  // namespace ebclr::core
