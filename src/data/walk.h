#pragma once
// Which files below a folder are pictures.

#include <filesystem>
#include <string>
#include <vector>

#include "image/read_file.h"

namespace ebclr::data {

/// A file that was found, and what identifies its content.
struct FoundFile {
  std::string path;  ///< relative to the folder, with '/'
  image::FileStamp stamp = {};
};

/// A file that cannot be used, and why.
struct FileProblem {
  std::string path, reason;
};

struct Found {
  std::vector<FoundFile> files;            ///< in the order of their paths
  std::vector<FileProblem> problems = {};  ///< named like pictures, but pipes, devices, broken links
  std::vector<std::string> unreadable_folders = {};
  int64_t others = 0;  ///< files that are no pictures
};

/// Walks through links; a folder that was already seen (a circle) is not entered again; hidden files are
/// skipped. A file counts when it is named like a picture or its first bytes are those of one.
Found find_pictures(const std::filesystem::path& folder);

}  // namespace ebclr::data
