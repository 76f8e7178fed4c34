#pragma once
// A labelled or unlabelled set of equally sized images, uint8, in memory or mapped. Knows no network and no
// training.

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ebclr::data {

/// Label of an image that has none.
inline constexpr int64_t kNoLabel = -1;

class MappedFile;

/// One split of a data set.
struct ImageSet {
  std::string name;                       ///< e.g. "cifar10"; for a folder its last path component
  std::string split;                      ///< "train", "test" or "all"
  torch::Tensor pixels;                   ///< uint8 [N, C, H, W], C is 1 or 3
  torch::Tensor large;                    ///< uint8 [N, C, L, L]: the same larger, for crops; undefined: none
  torch::Tensor labels;                   ///< int64 [N], kNoLabel where unknown
  torch::Tensor coarse_labels;            ///< int64 [N] for CIFAR-100, else undefined
  std::vector<std::string> class_names;   ///< one per label
  std::vector<std::string> coarse_names;  ///< one per coarse label
  std::vector<std::string> files;         ///< relative paths for folders, else empty
  std::vector<std::string> digests;       ///< of the files' bytes, one per image; empty where there are none
  std::vector<std::string> splits;  ///< one per image where they differ ("train", "test", "rest"), else empty
  std::vector<std::string> notes;   ///< what a user should know, e.g. "3 files could not be read: ..."

  std::shared_ptr<const MappedFile>
      mapping;  ///< the cache file behind the pixels; null when they are in memory

  int64_t size() const { return pixels.defined() ? pixels.size(0) : 0; }
  int64_t channels() const { return pixels.size(1); }
  int64_t height() const { return pixels.size(2); }
  int64_t width() const { return pixels.size(3); }
  int64_t classes() const { return static_cast<int64_t>(class_names.size()); }
  /// True when every image has a label.
  bool labelled() const;
};

/// Images of the given indices (int64 [M]) as a set of their own.
ImageSet select(const ImageSet& set, const torch::Tensor& indices);
/// The images of several sets one after the other, as split "all" with the split of each image in `splits`;
/// without a copy where they lie so in memory already.
ImageSet joined(const std::vector<const ImageSet*>& sets);
/// At most `limit` images, class-balanced where labels exist, seeded; original order kept. 0 keeps all.
ImageSet limit(const ImageSet& set, int64_t limit, uint64_t seed);
/// For each image the number of the first with the same bytes; its own where it is that one.
std::vector<size_t> first_of_equals(const ImageSet& set);
/// Indices of a seeded, class-stratified held-out part: {rest, held_out}, each int64, ascending. Copies of
/// one picture are all in one of them: an answer that was seen says nothing.
std::pair<torch::Tensor, torch::Tensor> hold_out(const ImageSet& set, double fraction, uint64_t seed);

/// The same of labels alone (int64 [N], kNoLabel where unknown): no copies are known.
std::pair<torch::Tensor, torch::Tensor> hold_out(const torch::Tensor& labels, double fraction, uint64_t seed);
/// The same, and images that belong together stay together: `first` [N] has the first of each one's group, by
/// whose label it is drawn. A group that would make the part too large is passed over. As above where each is
/// alone.
std::pair<torch::Tensor, torch::Tensor> hold_out(const torch::Tensor& labels,
                                                 const std::vector<size_t>& first, double fraction,
                                                 uint64_t seed);
/// Indices of what `limit` keeps, by labels alone; ascending.
torch::Tensor limit_indices(const torch::Tensor& labels, int64_t limit, uint64_t seed);

/// uint8 [..] to float in [-1, 1], the scale that every network of the project sees.
torch::Tensor to_unit_range(const torch::Tensor& pixels);

}  // namespace ebclr::data
