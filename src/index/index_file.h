#pragma once
// The index on disk: one file, written whole, opened by mmap. docs/index.md has the layout. Nothing in it is
// believed unchecked: sizes and small parts when it is opened, rows and pictures when they are first used.

#include <torch/types.h>

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::index {

/// Side of the small grey pictures by which near-copies are confirmed.
inline constexpr int64_t kSmallSide = 32;
/// Side of the thumbnails.
inline constexpr int64_t kThumbnailSide = 96;

/// Can pictures be read for an encoder at that side and with so many channels?
constexpr bool can_be_read(int64_t image_size, int64_t channels) {
  return image_size >= 8 && image_size <= 1024 && (channels == 1 || channels == 3);
}

/// What the index was made of.
struct IndexInfo {
  std::string fingerprint = {};  ///< of the encoder's and the head's weights and of how images are read
  std::string run = {};          ///< folder of the run, absolute; bytes, UTF-8 or not
  std::string method = {}, version = {};
  int64_t epoch = 0, step = 0;
  std::string folder = {};  ///< of the images, absolute; bytes, UTF-8 or not
  int64_t image_size = 32, channels = 3;
  int64_t count = 0, dim = 0;
  bool has_energies = false;
  double tau = 0.1;
};

/// What is kept of one file besides its features.
struct Record {
  float energy = 0;                     ///< NaN where the index has none
  float norm = 0;                       ///< length of the features before they were scaled to 1
  int64_t bytes = 0, modified = 0;      ///< of the file; modified in ns
  std::array<uint8_t, 32> sha256 = {};  ///< of its content
};

/// A navigable graph over the rows (HNSW), as flat arrays that are searched where they lie.
struct Graph {
  int64_t degree = 0;              ///< most links of a node in the lowest layer; half of it above
  int64_t entry = 0;               ///< node where a search starts
  int64_t top = 0;                 ///< highest layer
  torch::Tensor links = {};        ///< int32 [N, 1 + degree]: count, then neighbours
  torch::Tensor upper_first = {};  ///< int64 [N + 1]: first upper layer of a node in `upper`, in lists
  torch::Tensor upper = {};        ///< int32 [lists, 1 + degree / 2], layer 1 first

  bool empty() const { return !links.defined(); }
};

/// Everything that goes into a file.
struct Contents {
  IndexInfo info = {};
  torch::Tensor features = {};  ///< float [N, D], rows of length 1
  torch::Tensor small = {};     ///< uint8 [N, kSmallSide, kSmallSide]
  torch::Tensor references =
      {};  ///< float [M, P]: outputs that define the energy; undefined without energies
  std::vector<Record> records = {};
  std::vector<std::string> paths = {};                ///< relative to the folder, ascending
  std::vector<std::vector<uint8_t>> thumbnails = {};  ///< JPEG
  Graph graph = {};
};

/// Is this file an index, damaged or of another version perhaps, or empty: may a new one take its place?
bool is_index(const std::filesystem::path& path);

/// Writes a file under its name only when it is complete.
void write_index(const std::filesystem::path& path, const Contents& contents);

struct Mapping;  // the file in memory

/// An index on disk, opened for reading. Copies share the mapping.
class Index {
 public:
  /// Maps the file; throws Error naming what is wrong when it is none, damaged, cut off or of another
  /// version.
  static Index open(const std::filesystem::path& path);

  const IndexInfo& info() const;
  const std::filesystem::path& file() const;
  int64_t size() const { return info().count; }

  /// All features float [N, D] where they lie; every row is checked the first time.
  torch::Tensor features() const;
  /// One row, checked the first time.
  const float* row(int64_t i) const;
  const Record& record(int64_t i) const;
  std::string_view path(int64_t i) const;
  /// JPEG bytes; may be empty.
  std::span<const uint8_t> thumbnail(int64_t i) const;
  /// Grey uint8 [kSmallSide, kSmallSide].
  const uint8_t* small(int64_t i) const;
  /// Energies float [N].
  torch::Tensor energies() const;
  /// Outputs that define the energy, [M, P]; undefined without energies.
  torch::Tensor references() const;
  /// The graph where it lies; empty when the index has none. A row's links are checked by `links`.
  const Graph& graph() const;
  /// Neighbours of a node in a layer, checked the first time.
  std::span<const int32_t> links(int64_t node, int64_t layer) const;
  /// Row of a relative path, -1 when it is not there.
  int64_t find(std::string_view path) const;

 private:
  std::shared_ptr<Mapping> mapping_;
};

}  // namespace ebclr::index
