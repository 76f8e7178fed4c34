#include "data/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/error.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kIdxComponent = "data.idx";
// Deflate shrinks by at most 1032 : 1, which bounds what a compressed file can hold before it is read.
constexpr uint64_t kMaxRatio = 1032;
constexpr uint64_t kMaxSide = 1 << 14;

[[noreturn]] void fail(const fs::path& path, uint64_t offset, const std::string& what) {
  core::usage_error(kIdxComponent, fmt::format("{}: offset {}: {}", path.string(), offset, what));
}

// A byte stream over a plain or compressed file that knows how far it is in the content.
class Stream {
 public:
  explicit Stream(const fs::path& path) : path_(path), file_(nullptr, gzclose) {
    std::error_code ec;
    if (!fs::exists(path, ec))
      core::usage_error(kIdxComponent, fmt::format("{}: no such file", path.string()));
    if (!fs::is_regular_file(path, ec))
      core::usage_error(kIdxComponent, fmt::format("{}: not a regular file", path.string()));
    stored_ = fs::file_size(path, ec);
    file_.reset(gzopen(path.c_str(), "rb"));
    if (!file_) core::usage_error(kIdxComponent, fmt::format("{}: cannot be opened", path.string()));
    gzbuffer(file_.get(), static_cast<unsigned>(std::clamp<uint64_t>(stored_, 1 << 13, 1 << 18)));
  }

  // Most bytes of content that the file can hold.
  uint64_t capacity() { return gzdirect(file_.get()) ? stored_ : stored_ * kMaxRatio; }

  void read(void* to, uint64_t size, std::string_view what) {
    auto* p = static_cast<uint8_t*>(to);
    const uint64_t start = offset_;
    while (size > 0) {
      const auto part = static_cast<unsigned>(std::min<uint64_t>(size, 1 << 24));
      const int n = gzread(file_.get(), p, part);
      if (n < 0) fail(path_, offset_, fmt::format("damaged gzip data ({})", problem()));
      if (n == 0)
        fail(path_, offset_, fmt::format("the file ends inside {}: {} bytes more expected", what, size));
      p += n;
      offset_ += n;
      size -= n;
      if (n < static_cast<int>(part) && problem_code() == Z_BUF_ERROR)
        fail(path_, offset_,
             fmt::format("truncated gzip data inside {} that started at offset {}: {} bytes more expected",
                         what, start, size));
    }
  }

  // The content must end here; for gzip this also checks its CRC.
  void expect_end() {
    char extra = 0;
    const int n = gzread(file_.get(), &extra, 1);
    if (n > 0) fail(path_, offset_, "more bytes than the header announces; expected the end of the file");
    if (n < 0 || problem_code() < 0) fail(path_, offset_, fmt::format("damaged gzip data ({})", problem()));
  }

  uint64_t offset() const { return offset_; }

 private:
  int problem_code() {
    int code = Z_OK;
    gzerror(file_.get(), &code);
    return code;
  }
  std::string problem() {
    int code = Z_OK;
    std::string text = gzerror(file_.get(), &code);
    const std::string name = path_.string() + ": ";  // zlib repeats the path
    if (text.starts_with(name)) text.erase(0, name.size());
    return text;
  }

  fs::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  uint64_t stored_ = 0, offset_ = 0;
};

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

// Checks the header and returns the sizes; `dims` is 1 (labels) or 3 (images).
std::array<uint64_t, 3> read_header(Stream& in, const fs::path& path, int dims) {
  std::array<uint8_t, 16> h{};
  in.read(h.data(), 4, "the magic number");
  const uint32_t magic = big_endian(h.data()), expected = 0x0800u | static_cast<uint32_t>(dims);
  if (magic != expected)
    fail(path, 0,
         fmt::format("magic number 0x{:08x}; expected 0x{:08x} (unsigned bytes, {} dimension{})", magic,
                     expected, dims, dims == 1 ? "" : "s"));
  in.read(h.data() + 4, 4 * static_cast<uint64_t>(dims), "the header");
  std::array<uint64_t, 3> sizes = {1, 1, 1};
  for (int d = 0; d < dims; ++d) {
    sizes[d] = big_endian(h.data() + 4 + 4 * d);
    if (sizes[d] == 0 || (d > 0 && sizes[d] > kMaxSide))
      fail(
          path, 4 + 4 * d,
          fmt::format("dimension {} is {}; expected 1 to {}", d, sizes[d], d > 0 ? kMaxSide : 0xFFFFFFFFull));
  }
  const uint64_t body = sizes[0] * sizes[1] * sizes[2];  // below 2^60
  if (body + in.offset() > in.capacity())
    fail(path, in.offset(),
         fmt::format("the header announces {} bytes, the file can hold at most {}; it is truncated or not "
                     "what it says",
                     body, in.capacity() - std::min(in.capacity(), in.offset())));
  return sizes;
}

fs::path idx_file(const fs::path& folder, const std::string& split, std::string_view rest) {
  const std::string base = (split == "train" ? "train-" : "t10k-") + std::string(rest);
  std::error_code ec;
  if (fs::exists(folder / base, ec)) return folder / base;
  return folder / (base + ".gz");
}

}  // namespace

torch::Tensor read_idx_images(const fs::path& path) {
  Stream in(path);
  const auto sizes = read_header(in, path, 3);
  auto pixels = torch::empty(
      {static_cast<int64_t>(sizes[0]), 1, static_cast<int64_t>(sizes[1]), static_cast<int64_t>(sizes[2])},
      torch::kUInt8);
  in.read(pixels.data_ptr<uint8_t>(), pixels.numel(), "the images");
  in.expect_end();
  return pixels;
}

torch::Tensor read_idx_labels(const fs::path& path, int64_t classes) {
  Stream in(path);
  const auto sizes = read_header(in, path, 1);
  auto bytes = torch::empty({static_cast<int64_t>(sizes[0])}, torch::kUInt8);
  in.read(bytes.data_ptr<uint8_t>(), bytes.numel(), "the labels");
  in.expect_end();
  const auto* p = bytes.data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes.numel(); ++i)
    if (p[i] >= classes) fail(path, 8 + i, fmt::format("label {}; expected 0 to {}", p[i], classes - 1));
  return bytes.to(torch::kInt64);
}

ImageSet read_idx_set(const fs::path& folder, const std::string& name, const std::string& split,
                      std::vector<std::string> class_names) {
  const auto images = idx_file(folder, split, "images-idx3-ubyte");
  const auto labels = idx_file(folder, split, "labels-idx1-ubyte");
  ImageSet set;
  set.name = name;
  set.split = split;
  set.class_names = std::move(class_names);
  set.pixels = read_idx_images(images);
  set.labels = read_idx_labels(labels, set.classes());
  if (set.labels.numel() != set.size())
    fail(labels, 4,
         fmt::format("{} labels; expected {}, the number of images in {}", set.labels.numel(), set.size(),
                     images.filename().string()));
  return set;
}

bool has_idx_set(const fs::path& folder) {
  std::error_code ec;
  for (const char* split : {"train", "test"})
    for (const char* rest : {"images-idx3-ubyte", "labels-idx1-ubyte"})
      if (!fs::exists(idx_file(folder, split, rest), ec)) return false;
  return true;
}

}  // namespace ebclr::data
