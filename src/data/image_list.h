#pragma once
// The images of a run, file by file: which part each belongs to, and what it held. Written beside the run, so
// that its split stays what it was and a changed folder is noticed.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebclr::data {

struct ListedImage {
  std::string path;    ///< relative to the folder, with '/'
  std::string split;   ///< "train", "test", "rest" for what a limit left out, or "unreadable"
  uint64_t bytes = 0;  ///< size of the file
  std::string digest;  ///< first 32 hex digits of its SHA-256; empty where it was not read

  /// Part of what was trained or tested on.
  bool used() const { return split == "train" || split == "test"; }
};

/// In the order of the set: train, test, rest.
struct ImageList {
  std::vector<ListedImage> images;

  bool empty() const { return images.empty(); }
  /// One digest over names and contents of train and test.
  std::string fingerprint() const;
};

/// What differs between a list and the folder as it is now; names in the order of the lists.
struct ListChanges {
  std::vector<std::string> added, missing, changed;
  std::vector<std::string> left_out;  ///< there, but in neither split now (a limit, labels) and so not read
  bool none() const { return added.empty() && missing.empty() && changed.empty() && left_out.empty(); }
  /// "2 files are new (a.jpg, b.jpg), 1 is missing (c.jpg)".
  std::string text() const;
};

/// Compares train and test; other files only matter when they are new.
ListChanges compare(const ImageList& then, const ImageList& now);

/// path,split,bytes,digest with a header line.
std::string to_csv(const ImageList& list);
/// Reads what to_csv wrote; throws Error naming the file.
ImageList read_image_list(const std::filesystem::path& path);

}  // namespace ebclr::data
