#pragma once
// Everything that is read whole or written goes through here. Reads refuse what is no regular file (a pipe
// would hang); writes appear whole or not at all, follow no links, and leave nothing behind.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::core {

/// The whole file as bytes; `component` names the caller in errors. More than `limit` bytes are refused.
std::vector<std::byte> read_bytes(const std::filesystem::path& path, std::string_view component,
                                  uint64_t limit = UINT64_MAX);
/// The whole file as text.
std::string read_text(const std::filesystem::path& path, std::string_view component,
                      uint64_t limit = UINT64_MAX);

/// A file that appears under its name only when it is complete: written beside it under a random name that
/// nobody can have prepared, synced, renamed, and the folder synced. A link of that name is replaced, never
/// followed. Folders above it are made where they are missing. Destroyed without commit() it leaves nothing,
/// not even those; what a killed process left is swept by the next.
class AtomicFile {
 public:
  /// `mode` is for files that others must not read.
  AtomicFile(std::filesystem::path path, std::string_view component, unsigned mode = 0644);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends; a full disk throws and names the file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// For a file that is not written in its order: bytes at their place, also by several threads at once.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// Bytes that write_at put there.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;
  /// Makes the file visible under its final name.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::vector<std::filesystem::path> made_;  // folders above it, outermost first
  std::string component_, pending_;
  int fd_ = -1;
};

/// Throws Error when a file of that name could not be written now; for outputs of long work, before it.
/// Leaves nothing. An empty path is none and passes.
void check_writable(const std::filesystem::path& path, std::string_view component);

/// Writes a whole file atomically.
void write_atomically(const std::filesystem::path& path, std::string_view text, std::string_view component);

/// A file that grows by whole records: one that cannot be written entirely is taken back.
class AppendFile {
 public:
  /// Opens or makes it; a link or anything but a regular file is refused.
  AppendFile(std::filesystem::path path, std::string_view component);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// One write call for the record; throws Error when it is not there in the end.
  void append(std::string_view record);
  /// Until everything appended so far, and the file's name, would survive a power cut.
  void sync();

 private:
  std::filesystem::path path_;
  std::string component_;
  int fd_ = -1;
  bool name_synced_ = false;
};

/// Makes a folder and those above it; throws Error when the last of them is a link or no folder.
void make_folder(const std::filesystem::path& folder, std::string_view component);
/// Removes temporaries of AtomicFile in a folder whose writers are gone.
void sweep_temporaries(const std::filesystem::path& folder);

/// Lower-case hex SHA-256 of bytes or of a file (streamed).
std::string sha256(std::span<const std::byte> bytes);
std::string sha256_file(const std::filesystem::path& path, std::string_view component);

/// "1.2 GB", "340 kB".
std::string human_bytes(double bytes);

}  // namespace ebclr::core
