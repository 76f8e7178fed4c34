#pragma once
// Pictures decoded once: in memory, or in a cache file that is memory-mapped.

#include <torch/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/walk.h"
#include "image/pixels.h"

namespace ebclr::data {

/// kAuto: a file for sets of more than 64 MB, if there is room on the disk. kDisk: always a file, mapped.
/// kMemory: as kAuto, but the pixels are copied to memory. kNone: no file; decoded anew at every start.
enum class CacheKind { kAuto, kMemory, kDisk, kNone };

/// How far decoding is.
struct LoadProgress {
  int64_t done = 0, total = 0;
  double seconds = 0;  ///< since it began
};

/// Size of the larger copies that views are cropped from: a quarter more than the images, a multiple of 8.
int64_t large_size(int64_t image_size);

/// A picture before it is cut to that size. Whoever reads pictures for an encoder comes here: a JPEG decoded
/// at another reduced scale has other pixels. `large_ones` is of image::DecodeOptions.
image::Pixels decode_for(std::span<const std::byte> bytes, const std::string& name, int64_t image_size,
                         std::mutex* large_ones = nullptr);

/// A cache file in memory; lives as long as a tensor of it.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  /// Lets the process forget the pages that it has touched; they stay in the system's cache.
  void release() const;

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

struct DecodeRequest {
  std::filesystem::path folder;
  std::vector<FoundFile> files = {};  ///< in the order of the rows wanted
  int64_t image_size = 32;
  bool grayscale = false;
  CacheKind cache = CacheKind::kAuto;
  std::filesystem::path cache_folder = {};  ///< where cache files lie; empty: nowhere
  int threads = 0;                          ///< 0: as many as there are cores
  std::function<void(const LoadProgress&)> progress = {};
};

struct DecodedImages {
  torch::Tensor pixels;                       ///< uint8 [N, C, S, S]
  torch::Tensor large;                        ///< uint8 [N, C, L, L], the same at large_size()
  std::vector<size_t> kept;                   ///< which of the files each row is, ascending
  std::vector<std::string> digests;           ///< one per row: first 32 hex digits of the file's SHA-256
  std::vector<FileProblem> problems;          ///< the other files
  std::vector<std::string> notes;             ///< e.g. why there is no cache file
  std::shared_ptr<const MappedFile> mapping;  ///< null when the pixels are in memory
  int64_t decoded = 0;                        ///< files that had to be decoded now
};

/// Decodes what the cache does not have; files that cannot be read are named in `problems`.
DecodedImages decode_images(const DecodeRequest& request);

}  // namespace ebclr::data
