#pragma once
// Which files below a folder are pictures.

#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/read_file.h"

namespace ebclr::data {

/// Equal for all names of one file: links, hard or symbolic.
struct FileId {
  uint64_t device = 0, inode = 0;
  auto operator<=>(const FileId&) const = default;
};

/// A file that was found, and what identifies its content.
struct FoundFile {
  std::string path;  ///< relative to the folder, with '/'
  image::FileStamp stamp = {};
  FileId id = {};

  /// Another name of that file? Some file systems give an inode twice, hence the stamp.
  bool same_file(const FoundFile& other) const { return id == other.id && stamp == other.stamp; }
};

/// A file that cannot be used, and why.
struct FileProblem {
  std::string path, reason;
};

struct Found {
  std::vector<FoundFile> files;            ///< in the order of their paths
  std::vector<FileProblem> problems = {};  ///< named like pictures, but pipes, devices, broken links
  /// That could not be listed, or not to the end; also links to what is away, which may be a folder.
  std::vector<std::string> unreadable_folders = {};
  std::vector<FoundFile> further_names = {};  ///< links to pictures that are in `files`
  std::vector<std::string> runs = {};         ///< folders that runs of training wrote, which were not entered
  int64_t others = 0;                         ///< files that are no pictures
};

/// Walks through links; a folder that was already seen (a circle) is not entered again; hidden files are
/// skipped. A file counts when it is named like a picture or its first bytes are those of one, and it counts
/// once: what is there without a link keeps its own name, links bring what is not there otherwise.
/// Sub-folders `first` come before the others, links in them included; what one of them holds without a link
/// is never taken by a link of another. A sub-folder that is a run of training is not entered, nor `samples`
/// where the folder itself is one: what a run drew is no data. Unless pictures of it are among `known`.
Found find_pictures(const std::filesystem::path& folder, const std::vector<std::string>& first = {},
                    const std::vector<std::string>& known = {});

/// The order of Found::files: name by name, as one folder after the other is listed.
bool path_before(std::string_view a, std::string_view b);

/// Lists files under those of their names (links) that `names` has, one or more, where most of `names` lead
/// to a file that was found; otherwise they are of another folder and nothing changes.
void take_names(const std::vector<std::string>& names, const std::filesystem::path& folder, Found& found);

/// What is under that name below the folder; nothing unless it is a regular file, or leads to one.
std::optional<FoundFile> file_at(const std::filesystem::path& folder, const std::string& path);

}  // namespace ebclr::data
