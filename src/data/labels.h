#pragma once
// Classes of images from a CSV or from the folders they lie in.

#include <filesystem>
#include <string>
#include <vector>

#include "data/walk.h"

namespace ebclr::data {

struct Labels {
  std::vector<int64_t> label = {};            ///< one per file, kNoLabel where unknown
  std::vector<std::string> class_names = {};  ///< one per label
  std::vector<std::string> notes = {};
};

/// Lines path,label for a part of the files; paths are relative to `folder` or absolute, and any name of a
/// file (links) will do.
Labels labels_from_csv(const std::filesystem::path& csv, const std::filesystem::path& folder,
                       const std::vector<FoundFile>& files);

/// First-level sub-folders as classes when nearly all images lie right inside them, or all of them in a
/// folder `images` inside (Tiny ImageNet's layout).
Labels labels_from_folders(const std::vector<std::string>& files);

/// The same of files that lie in a pool, while the sub-folders hold their further names (links): the class of
/// a file is the one other sub-folder that names it.
Labels labels_from_links(const Found& found);

/// The first five, and how many more there are.
std::string some_of(const std::vector<std::string>& items);

}  // namespace ebclr::data
