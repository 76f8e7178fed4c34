#pragma once
// Any folder of images: found recursively, decoded in parallel, resized and centre-cropped to one size.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/image_cache.h"
#include "data/image_list.h"
#include "data/image_set.h"

namespace ebclr::data {

struct FolderOptions {
  int64_t image_size = 32;  ///< side of the square images that come out
  bool grayscale = false;
  std::filesystem::path labels_csv =
      {};           ///< path,label lines for a part of the images; empty: labels from sub-folders
  int threads = 0;  ///< 0: as many as there are cores
  CacheKind cache = CacheKind::kNone;
  std::filesystem::path cache_folder = {};
};

/// All images under `folder`, in the order of their relative paths. Labels come from the CSV, else from
/// first-level sub-folders when the images sit right inside them. Files that cannot be read are left out and
/// named in the set's notes; it is an error when most cannot.
ImageSet read_folder(const std::filesystem::path& folder, const FolderOptions& options);

/// Train and test of a folder: the splits of a run's list, else sub-folders train and test (val, valid), else
/// a seeded held-out part; then the limits. What is not wanted is not decoded.
TrainTest load_folder(const SourceOptions& options, const LoadContext& context);

/// A look at a folder before anything is decoded.
struct Survey {
  int64_t files = 0;        ///< pictures
  int64_t median_side = 0;  ///< short side, the median of a sample; 0 when none can be read
};
Survey survey(const std::filesystem::path& folder);

/// A labelled set for watching training: a folder with classes, or a CSV of path,label whose paths are
/// relative to the CSV or absolute. A third of it is asked about, the rest is known.
TrainTest load_probe(const std::filesystem::path& source, const FolderOptions& options, uint64_t seed);

/// One picture in memory: its centre square as planes, out uint8 [C, size, size] with C 1 or 3, the pixels
/// that a set has of it. Throws Error when it cannot be read; `name` stands for it.
void decode_image(std::span<const std::byte> bytes, const std::string& name, int64_t size, bool grayscale,
                  uint8_t* out);

/// Single files, in the given order, as one unlabelled set.
ImageSet read_files(const std::vector<std::filesystem::path>& files, const FolderOptions& options);

}  // namespace ebclr::data
