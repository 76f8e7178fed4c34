#pragma once
// Data sets by name or folder: one explicit table.

#include <filesystem>
#include <string>
#include <vector>

#include "data/image_cache.h"
#include "data/image_list.h"
#include "data/image_set.h"

namespace ebclr::data {

/// What to load and how.
struct SourceOptions {
  std::string source = {};  ///< "mnist", "fmnist", "cifar10", "cifar100", "shapes[28][-gray]" or a folder
  std::filesystem::path data_root = {};  ///< empty: $EBCLR_DATA, else the user's cache folder
  int64_t image_size = 0;                ///< folders: short side after resizing, centre-cropped; 0: 32
  bool grayscale = false;                ///< folders: read as one channel
  std::string labels_csv = {};           ///< folders: CSV of path,label for a part of the images
  bool labelled = false;                 ///< only images that have a label
  double test_fraction = 0.1;            ///< folders: seeded part that becomes the test split
  uint64_t seed = 0;                     ///< of that split, of `limit` and of `shapes`
  int64_t limit = 0;                     ///< train images, class-balanced; 0: all
  int64_t limit_test = 0;                ///< the same for the test split
  int64_t validation = 0;                ///< train images that take the test split's place; 0: none
  CacheKind cache = CacheKind::kAuto;    ///< folders: where decoded images are kept
};

/// What belongs to this call and not to a run.
struct LoadContext {
  int threads = 0;                                         ///< that decode; 0: as many as there are cores
  std::function<void(const LoadProgress&)> progress = {};  ///< called while pictures are decoded
  const ImageList* list = nullptr;  ///< folders: the images of a run, whose splits count
  bool rest = false;                ///< folders: also what is in neither split
  bool labels = true;               ///< folders: false reads them without labels
};

/// Both splits; `test` may be empty (size 0).
struct TrainTest {
  ImageSet train = {}, test = {};
  ImageSet rest = {};   ///< folders, when asked for: images that a limit or a list leaves out
  ImageList list = {};  ///< folders: every image, its split and digest; else empty
  std::vector<FileProblem> problems = {};  ///< folders: files that could not be read, and why
  int64_t decoded = 0;                     ///< folders: pictures that had to be decoded now
};

/// Row of `ebclr data list`.
struct CatalogEntry {
  std::string name, description;
  bool present = false;          ///< loadable now
  std::filesystem::path folder;  ///< where it is or would be
  std::string images = {};  ///< the set that its images are of: its own name, but where only labels differ
  int64_t channels = 3, side = 32;
  int64_t train = 0, test = 0;  ///< images of its splits
};

/// Channels and side of images.
struct ImageShape {
  int64_t channels = 3, side = 32;
};
/// What `load` will give, without loading it.
ImageShape shape_of(const SourceOptions& options);
/// Is it read at whatever size is asked for: a folder, or shapes whose name says none?
bool takes_any_size(const std::string& name);
/// Train images of a named set without loading it (shapes: what is drawn without a limit); 0 for folders.
int64_t train_images(const std::string& name);
/// Test images of a set that is kept in files; 0 for folders and for shapes, which are drawn as needed.
int64_t test_images(const std::string& name);
/// Does the name mean a folder of images, and no known set?
bool is_folder(const std::string& name);

/// $EBCLR_DATA, else $XDG_CACHE_HOME/ebclr, else ~/.cache/ebclr.
std::filesystem::path default_data_root();
/// The named sets and whether they are there.
std::vector<CatalogEntry> catalog(const std::filesystem::path& data_root);
/// Loads; throws Error with what to do (e.g. "run: ebclr data get cifar10") when it is absent.
TrainTest load(const SourceOptions& options, const LoadContext& context = {});

}  // namespace ebclr::data
