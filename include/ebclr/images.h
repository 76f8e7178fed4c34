#pragma once
// Images in memory: a folder of files, or a set that ebclr knows by name.

#include <ebclr/api.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ebclr {

/// Equally sized images. Make one from your own pixels, or with read_folder or load_set.
struct Images {
  torch::Tensor pixels;                  ///< uint8 [N, C, H, W], C is 1 or 3 (RGB)
  torch::Tensor labels;                  ///< int64 [N], -1 where unknown; undefined: none has a label
  std::vector<std::string> class_names;  ///< one per label
  std::vector<std::string> files;        ///< paths below the folder, in the order of the rows; else empty
  std::vector<std::string> notes;        ///< what one should know, e.g. files that could not be read
  std::string name = "images";           ///< for messages

  int64_t size() const { return pixels.defined() ? pixels.size(0) : 0; }
};

struct FolderOptions {
  int64_t image_size = 32;  ///< side of the squares that come out: short side resized, centre cropped
  bool grayscale = false;   ///< one channel instead of three
};

/// Every image file below `folder`, in the order of the relative paths; labels from first-level sub-folders
/// where the images sit right inside them. Files that cannot be read are left out and named in `notes`;
/// throws Error when most cannot.
EBCLR_API Images read_folder(const std::filesystem::path& folder, const FolderOptions& options = {});

struct SetOptions {
  std::filesystem::path data_root;  ///< where sets are kept; empty: $EBCLR_DATA, else the user's cache folder
  bool test = false;                ///< the test split instead of train
  int64_t limit = 0;                ///< at most this many images, class-balanced; 0: all
  uint64_t seed = 0;                ///< of that choice
};

/// A set by name: mnist, fmnist, cifar10, cifar100 (fetched before with `ebclr data get`), or shapes, which
/// is drawn.
EBCLR_API Images load_set(const std::string& name, const SetOptions& options = {});

/// uint8 pixels to float in [-1, 1], the scale that every network of ebclr sees.
EBCLR_API torch::Tensor to_unit_range(const torch::Tensor& pixels);

}  // namespace ebclr
