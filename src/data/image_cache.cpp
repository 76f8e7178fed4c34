#include "data/image_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/files.h"
#include "core/threads.h"
#include "data/bare.h"
#include "image/decode.h"
#include "image/resize.h"

namespace ebclr::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kCacheComponent = "data.cache";
constexpr uint64_t kFileFrom = 64'000'000;  // smaller sets are decoded faster than a file is worth keeping
constexpr uint32_t kNoRow = 0xFFFFFFFF;
constexpr char kMagic[9] = "EBCLRIM1";

// The first page of a cache file; behind it the images, the larger copies, and the index.
struct Head {
  char magic[8];
  uint64_t rows, channels, size, large, index_at, index_bytes;
  char index_sha[64];
};
constexpr uint64_t kPage = 4096;
static_assert(sizeof(Head) <= kPage);

uint64_t row_bytes(uint64_t channels, uint64_t size) {
  return channels * size * size;
}
uint64_t large_at(const Head& h) {
  return (kPage + h.rows * row_bytes(h.channels, h.size) + kPage - 1) / kPage * kPage;
}
uint64_t pixel_bytes(const Head& h, uint64_t rows) {
  return rows * (row_bytes(h.channels, h.size) + row_bytes(h.channels, h.large));
}
uint64_t pixels_end(const Head& h) {
  return large_at(h) + h.rows * row_bytes(h.channels, h.large);
}

// What the index knows of a file.
struct Known {
  image::FileStamp stamp;
  // Of what was read, also where it is no picture. A file without it is tried again: it could not be read.
  // (Caches of 0.1.0 have none for what is no picture either.)
  std::string digest = {};
  std::string reason = {};  // why it has no row
  uint32_t row = kNoRow;
};
using Index = std::unordered_map<std::string, Known>;

void put(std::string& to, uint64_t v) {
  to.append(reinterpret_cast<const char*>(&v), sizeof v);
}
void put(std::string& to, const std::string& text) {
  put(to, text.size());
  to += text;
}

std::string to_bytes(const std::vector<std::pair<std::string, const Known*>>& index) {
  std::string out;
  for (const auto& [path, k] : index) {
    put(out, path);
    put(out, k->stamp.size);
    put(out, static_cast<uint64_t>(k->stamp.modified));
    put(out, k->digest);
    put(out, k->reason);
    put(out, k->row);
  }
  return out;
}

// Nothing when it is not well-formed.
std::optional<Index> parse_index(std::string_view bytes, uint64_t rows) {
  Index out;
  bool good = true;
  const auto number = [&]() -> uint64_t {
    if (bytes.size() < 8) return good = false, 0;
    uint64_t v = 0;
    std::memcpy(&v, bytes.data(), 8);
    bytes.remove_prefix(8);
    return v;
  };
  const auto text = [&]() -> std::string {
    const uint64_t n = number();
    if (n > bytes.size()) return good = false, "";
    std::string v(bytes.substr(0, n));
    bytes.remove_prefix(n);
    return v;
  };
  while (good && !bytes.empty()) {
    const auto path = text();
    Known k;
    k.stamp.size = number();
    k.stamp.modified = static_cast<int64_t>(number());
    k.digest = text();
    k.reason = text();
    k.row = static_cast<uint32_t>(number());
    if (k.row != kNoRow && k.row >= rows) good = false;
    out.emplace(path, std::move(k));
  }
  if (!good) return std::nullopt;
  return out;
}

// A cache file that was opened and found whole.
struct Opened {
  std::shared_ptr<const MappedFile> file;
  Head head{};
  Index index;

  // What is known of the file, if it has not changed since.
  const Known* find(const FoundFile& f) const {
    const auto it = index.find(f.path);
    return it != index.end() && it->second.stamp == f.stamp ? &it->second : nullptr;
  }
  const uint8_t* pixels(uint64_t row) const {
    return file->data() + kPage + row * row_bytes(head.channels, head.size);
  }
  const uint8_t* larger(uint64_t row) const {
    return file->data() + large_at(head) + row * row_bytes(head.channels, head.large);
  }
};

// The cache file if it is there, fits the request and is whole; a damaged one is as good as none.
std::optional<Opened> open_cache(const fs::path& path, const Head& wanted) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return std::nullopt;
  Opened o;
  try {
    o.file = std::make_shared<MappedFile>(path);
  } catch (const core::Error&) {
    return std::nullopt;
  }
  if (o.file->size() < kPage) return std::nullopt;
  std::memcpy(&o.head, o.file->data(), sizeof o.head);
  const auto& h = o.head;
  if (std::memcmp(h.magic, kMagic, 8) != 0 || h.channels != wanted.channels || h.size != wanted.size ||
      h.large != wanted.large || h.rows >= kNoRow || h.index_at != pixels_end(h) ||
      h.index_at > o.file->size() || h.index_bytes != o.file->size() - h.index_at)
    return std::nullopt;
  const auto* index = reinterpret_cast<const std::byte*>(o.file->data() + h.index_at);
  if (core::sha256({index, h.index_bytes}) != std::string_view(h.index_sha, 64)) return std::nullopt;
  auto parsed = parse_index({reinterpret_cast<const char*>(index), h.index_bytes}, h.rows);
  if (!parsed) return std::nullopt;
  o.index = std::move(*parsed);
  return o;
}

// Where the rows of decoded pictures go.
class Rows {
 public:
  virtual ~Rows() = default;
  virtual void write(uint64_t row, const uint8_t* pixels, const uint8_t* large) = 0;
  virtual void move(uint64_t from, uint64_t to) = 0;
};

class MemoryRows : public Rows {
 public:
  MemoryRows(uint64_t rows, int64_t channels, int64_t size, int64_t large)
      : pixels(torch::empty({static_cast<int64_t>(rows), channels, size, size}, torch::kUInt8)),
        larger(torch::empty({static_cast<int64_t>(rows), channels, large, large}, torch::kUInt8)),
        small_(row_bytes(channels, size)),
        large_(row_bytes(channels, large)) {}
  void write(uint64_t row, const uint8_t* p, const uint8_t* l) override {
    std::memcpy(pixels.data_ptr<uint8_t>() + row * small_, p, small_);
    std::memcpy(larger.data_ptr<uint8_t>() + row * large_, l, large_);
  }
  void move(uint64_t from, uint64_t to) override {
    write(to, pixels.data_ptr<uint8_t>() + from * small_, larger.data_ptr<uint8_t>() + from * large_);
  }
  torch::Tensor pixels, larger;

 private:
  uint64_t small_, large_;
};

// Why there can be no cache file: an error where one was asked for, else the images are held in memory.
class NoFile : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A cache file being written: under a temporary name, which the next writer sweeps, until it is whole. Others
// may not read it: the pictures may be private.
class FileRows : public Rows {
 public:
  FileRows(const fs::path& path, const Head& head) : head_(head) {
    attempt([&] { file_.emplace(path, kCacheComponent, 0600); });
  }

  void write(uint64_t row, const uint8_t* p, const uint8_t* l) override {
    const auto small = row_bytes(head_.channels, head_.size), large = row_bytes(head_.channels, head_.large);
    attempt([&] {
      file_->write_at(kPage + row * small, std::as_bytes(std::span(p, small)));
      file_->write_at(large_at(head_) + row * large, std::as_bytes(std::span(l, large)));
    });
  }
  void move(uint64_t from, uint64_t to) override {
    const auto small = row_bytes(head_.channels, head_.size), large = row_bytes(head_.channels, head_.large);
    std::vector<uint8_t> p(small), l(large);
    attempt([&] {
      file_->read_at(kPage + from * small, std::as_writable_bytes(std::span(p)));
      file_->read_at(large_at(head_) + from * large, std::as_writable_bytes(std::span(l)));
    });
    write(to, p.data(), l.data());
  }
  // The rows stay where the count at the beginning put them.
  void finish(const std::string& index) {
    const auto bytes = std::as_bytes(std::span(index.data(), index.size()));
    head_.index_at = pixels_end(head_);
    head_.index_bytes = index.size();
    std::memcpy(head_.index_sha, core::sha256(bytes).data(), 64);
    std::memcpy(head_.magic, kMagic, 8);
    std::vector<std::byte> page(kPage);
    std::memcpy(page.data(), &head_, sizeof head_);
    attempt([&] {
      file_->write_at(head_.index_at, bytes);
      file_->write_at(0, page);
      file_->commit();
    });
  }

 private:
  template <class F>
  void attempt(F&& use) {
    try {
      use();
    } catch (const core::Error& e) {
      throw NoFile(bare(e));
    }
  }

  Head head_;
  std::optional<core::AtomicFile> file_;
};

// Pixels of one picture.
struct Buffers {
  explicit Buffers(const Head& h)
      : small(row_bytes(h.channels, h.size)), large(row_bytes(h.channels, h.large)) {}
  std::vector<uint8_t> small, large;
};

// Reads, digests and decodes one file; `large_ones` is of DecodeOptions.
Known decode_file(const DecodeRequest& r, const Head& head, const FoundFile& file, std::mutex& large_ones,
                  Buffers& to) {
  Known k{.stamp = file.stamp};
  std::string digest;
  const auto failed = [&](const std::exception& e) {
    k.reason = bare(e);
    for (const auto& name : {file.path + ": ", (r.folder / file.path).string() + ": "})
      if (k.reason.starts_with(name)) k.reason.erase(0, name.size());
    if (k.reason.empty()) k.reason = "unknown problem";
  };
  try {
    const auto bytes = image::read_regular(r.folder / file.path, image::kMaxFileBytes, &k.stamp);
    digest = core::sha256(bytes).substr(0, 32);
    const auto picture = decode_for(bytes, file.path, r.image_size, &large_ones);
    image::square_planes(picture, static_cast<int>(head.size), r.grayscale, to.small.data());
    image::square_planes(picture, static_cast<int>(head.large), r.grayscale, to.large.data());
    k.digest = digest;
  } catch (const core::Error& e) {
    failed(e);
    if (e.code() == core::ExitCode::kUsage) k.digest = digest;  // these bytes will never be a picture
  } catch (const std::exception& e) {
    failed(e);
  }
  return k;
}

// Decodes the files into rows; fills `known`, one per file. What `old` has is copied.
int64_t fill_rows(const DecodeRequest& r, const Head& head, const std::optional<Opened>& old, Rows& rows,
                  std::vector<Known>& known) {
  const auto count = static_cast<int64_t>(r.files.size());
  std::atomic<int64_t> next{0}, done{0}, decoded{0};
  std::mutex large_ones, error_lock;
  std::exception_ptr error;
  const auto start = std::chrono::steady_clock::now();
  const auto one = [&](int64_t i, Buffers& buffers) {
    const auto& file = r.files[static_cast<size_t>(i)];
    Known& k = known[static_cast<size_t>(i)];
    const auto row = static_cast<uint32_t>(i);
    const Known* before = old ? old->find(file) : nullptr;
    if (before && !before->digest.empty()) {
      k = *before;
      if (k.row == kNoRow) return;
      rows.write(row, old->pixels(k.row), old->larger(k.row));
    } else {
      ++decoded;
      k = decode_file(r, head, file, large_ones, buffers);
      if (!k.reason.empty()) return;
      rows.write(row, buffers.small.data(), buffers.large.data());
    }
    k.row = row;
  };
  const auto work = [&](bool reports) {
    Buffers buffers(head);
    double said = 0;
    try {
      for (int64_t i = next++; i < count; i = next++) {
        one(i, buffers);
        ++done;
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (reports && r.progress && (seconds - said > 0.5)) r.progress({done, count, said = seconds});
      }
    } catch (...) {
      const std::scoped_lock lock(error_lock);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  const int64_t threads = std::clamp<int64_t>(r.threads > 0 ? r.threads : core::available_cores(), 1,
                                              std::max<int64_t>(count, 1));
  std::vector<std::thread> pool;
  for (int64_t t = 1; t < threads; ++t) pool.emplace_back(work, false);
  work(true);
  for (auto& t : pool) t.join();
  if (error) std::rethrow_exception(error);
  if (r.progress && decoded > 0)
    r.progress(
        {count, count, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
  return decoded;
}

// Closes the gaps that unreadable files left; returns the rows in use.
uint64_t close_gaps(Rows& rows, std::vector<Known>& known) {
  uint64_t kept = 0;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].row == kNoRow) continue;
    if (kept != i) rows.move(i, kept);
    known[i].row = static_cast<uint32_t>(kept++);
  }
  return kept;
}

void tell(const DecodeRequest& r, const std::vector<Known>& known, DecodedImages& out) {
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].row == kNoRow) {
      out.problems.push_back({r.files[i].path, known[i].reason});
    } else {
      out.kept.push_back(i);
      out.digests.push_back(known[i].digest);
    }
  }
}

// Tensors over the mapped file's first rows.
void map_rows(const Opened& cache, int64_t rows, DecodedImages& out) {
  const auto channels = static_cast<int64_t>(cache.head.channels),
             size = static_cast<int64_t>(cache.head.size), large = static_cast<int64_t>(cache.head.large);
  const auto keep = cache.file;
  const auto blob = [&](const uint8_t* at, int64_t side) {
    return torch::from_blob(
        const_cast<uint8_t*>(at), {rows, channels, side, side}, [keep](void*) {}, torch::kUInt8);
  };
  out.pixels = blob(cache.pixels(0), size);
  out.large = blob(cache.larger(0), large);
  out.mapping = keep;
}

void copy_rows(const Opened& cache, const std::vector<Known>& known, DecodedImages& out) {
  uint64_t rows = 0;
  for (const auto& k : known) rows += k.row != kNoRow;
  MemoryRows memory(rows, static_cast<int64_t>(cache.head.channels), static_cast<int64_t>(cache.head.size),
                    static_cast<int64_t>(cache.head.large));
  uint64_t to = 0;
  for (const auto& k : known)
    if (k.row != kNoRow) memory.write(to++, cache.pixels(k.row), cache.larger(k.row));
  out.pixels = memory.pixels;
  out.large = memory.larger;
}

// What the cache knows of the files; nothing when it lacks one that can be decoded. Files that could not be
// read are tried again: `tried` counts them.
std::optional<std::vector<Known>> all_known(const DecodeRequest& r, const Opened& cache, int64_t& tried) {
  std::vector<Known> known;
  known.reserve(r.files.size());
  for (const auto& f : r.files) {
    const Known* k = cache.find(f);
    if (!k) return std::nullopt;
    known.push_back(*k);
  }
  Buffers buffers(cache.head);
  std::mutex alone;
  for (size_t i = 0; i < known.size(); ++i) {
    if (!known[i].digest.empty()) continue;
    ++tried;
    known[i] = decode_file(r, cache.head, r.files[i], alone, buffers);
    if (known[i].reason.empty()) return std::nullopt;
  }
  return known;
}

bool in_order(const std::vector<Known>& known) {
  uint32_t next = 0;
  for (const auto& k : known)
    if (k.row != kNoRow && k.row != next++) return false;
  return true;
}

DecodedImages rows_of(const Opened& cache, const DecodeRequest& r, const std::vector<Known>& known,
                      int64_t decoded, bool copy) {
  DecodedImages out;
  out.decoded = decoded;
  tell(r, known, out);
  if (copy) {
    copy_rows(cache, known, out);
  } else {
    map_rows(cache, static_cast<int64_t>(out.kept.size()), out);
  }
  return out;
}

// The request from the file as it is; nothing when it has to be written anew.
std::optional<DecodedImages> from_cache(const DecodeRequest& r, const Opened& cache) {
  int64_t tried = 0;
  const auto known = all_known(r, cache, tried);
  if (!known) return std::nullopt;
  const bool copy = r.cache == CacheKind::kMemory || !in_order(*known);
  if (copy && r.cache != CacheKind::kMemory && pixel_bytes(cache.head, r.files.size()) >= 4 * kFileFrom)
    return std::nullopt;
  return rows_of(cache, r, *known, tried, copy);
}

// What the old file has beyond the request and is still on the disk.
std::vector<FoundFile> others_in(const Opened& old, const DecodeRequest& r) {
  std::unordered_set<std::string> asked;
  for (const auto& f : r.files) asked.insert(f.path);
  std::vector<FoundFile> others;
  std::error_code ec;
  for (const auto& [name, k] : old.index)
    if (k.row != kNoRow && !asked.contains(name) && fs::file_size(r.folder / name, ec) == k.stamp.size && !ec)
      others.push_back({name, k.stamp});
  std::sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return others;
}

// Writes the file anew: rows of the request, then the others of the old file.
DecodedImages rewrite(const DecodeRequest& r, const fs::path& path, const Head& wanted,
                      const std::optional<Opened>& old, const std::vector<FoundFile>& others) {
  DecodeRequest all = r;
  all.files.insert(all.files.end(), others.begin(), others.end());
  Head head = wanted;
  head.rows = all.files.size();
  FileRows rows(path, head);
  std::vector<Known> known(all.files.size());
  const int64_t decoded = fill_rows(all, head, old, rows, known);
  close_gaps(rows, known);
  std::vector<std::pair<std::string, const Known*>> index;
  for (size_t i = 0; i < known.size(); ++i) index.emplace_back(all.files[i].path, &known[i]);
  rows.finish(to_bytes(index));
  const auto fresh = open_cache(path, wanted);
  if (!fresh) throw NoFile(fmt::format("{}: cannot be read back; look after the disk", path.string()));
  known.resize(r.files.size());
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i].stamp != r.files[i].stamp)
      core::run_error(
          kCacheComponent,
          fmt::format("files in {} change while they are read; try again when they rest", r.folder.string()));
  return rows_of(*fresh, r, known, decoded, r.cache == CacheKind::kMemory);
}

fs::path cache_path(const DecodeRequest& r, const Head& head) {
  std::error_code ec;
  const std::string key = fmt::format("{}\n{} {} {}", fs::weakly_canonical(r.folder, ec).string(),
                                      head.channels, head.size, head.large);
  return r.cache_folder /
         (core::sha256(std::as_bytes(std::span(key.data(), key.size()))).substr(0, 20) + ".images");
}

// Makes the folder for the file where it is not there.
void check_folder(const fs::path& folder) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (::access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw NoFile(folder.empty()
                   ? std::string("there is no folder for it (HOME is not set); choose one with --data-root")
                   : fmt::format("{} cannot be written; choose another with --data-root", folder.string()));
}

// One process at a time fills a cache; others wait for it and then read it.
core::FileLock lock_of(const fs::path& path) {
  try {
    return core::FileLock::wait(path.string() + ".lock", kCacheComponent);
  } catch (const core::Error& e) {
    throw NoFile(bare(e));
  }
}

void check_room(const fs::path& folder, uint64_t bytes) {
  struct statvfs disk {};
  const double room = ::statvfs(folder.c_str(), &disk) == 0
                          ? static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize)
                          : 0;
  if (room < 1.1 * static_cast<double>(bytes) + 1e9)
    throw NoFile(fmt::format("{} has {} free and {} are needed", folder.string(), core::human_bytes(room),
                             core::human_bytes(static_cast<double>(bytes))));
}

// Through the cache file, which is written anew where it lacks something.
DecodedImages through_file(const DecodeRequest& r, const Head& head, const fs::path& path) {
  check_folder(r.cache_folder);
  const auto lock = lock_of(path);
  core::sweep_temporaries(r.cache_folder);  // before the room on the disk is looked at
  const auto cache = open_cache(path, head);
  std::vector<FoundFile> others;
  if (cache) {
    if (auto out = from_cache(r, *cache)) return std::move(*out);
    others = others_in(*cache, r);
  }
  if (r.cache != CacheKind::kDisk)
    check_room(r.cache_folder, pixel_bytes(head, r.files.size() + others.size()));
  return rewrite(r, path, head, cache, others);
}

// What `old` has is copied, the rest decoded.
DecodedImages in_memory(const DecodeRequest& r, const Head& head, const std::optional<Opened>& old = {}) {
  DecodedImages out;
  MemoryRows rows(r.files.size(), static_cast<int64_t>(head.channels), static_cast<int64_t>(head.size),
                  static_cast<int64_t>(head.large));
  std::vector<Known> known(r.files.size());
  out.decoded = fill_rows(r, head, old, rows, known);
  const auto kept = static_cast<int64_t>(close_gaps(rows, known));
  out.pixels = rows.pixels.narrow(0, 0, kept);
  out.large = rows.larger.narrow(0, 0, kept);
  tell(r, known, out);
  return out;
}

}  // namespace

int64_t large_size(int64_t image_size) {
  return (image_size * 5 / 4 + 7) / 8 * 8;
}

image::Pixels decode_for(std::span<const std::byte> bytes, const std::string& name, int64_t image_size,
                         std::mutex* large_ones) {
  return image::decode(bytes, name,
                       {.at_least = static_cast<int>(large_size(image_size)), .large = large_ones});
}

MappedFile::MappedFile(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat s {};
  if (fd < 0 || ::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size == 0) {
    if (fd >= 0) ::close(fd);
    core::run_error(kCacheComponent, fmt::format("{}: cannot be opened", path.string()));
  }
  size_ = static_cast<uint64_t>(s.st_size);
  // Private and writable: a tensor that is written to by mistake changes its own copy of a page, never the
  // file.
  void* p = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  ::close(fd);
  if (p == MAP_FAILED)
    core::run_error(kCacheComponent,
                    fmt::format("{}: cannot be mapped: {}", path.string(), std::strerror(errno)));
  data_ = static_cast<uint8_t*>(p);
  ::madvise(p, size_, MADV_RANDOM);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

void MappedFile::release() const {
  ::madvise(data_, size_, MADV_DONTNEED);
}

DecodedImages decode_images(const DecodeRequest& r) {
  Head head{};
  head.channels = r.grayscale ? 1 : 3;
  head.size = static_cast<uint64_t>(r.image_size);
  head.large = static_cast<uint64_t>(large_size(r.image_size));
  const uint64_t bytes = pixel_bytes(head, r.files.size());
  if (r.files.size() >= kNoRow || bytes > uint64_t{1} << 42)
    core::usage_error(
        kCacheComponent,
        fmt::format("{} images of {} x {} need {}; lower image_size or set a limit", r.files.size(),
                    r.image_size, r.image_size, core::human_bytes(static_cast<double>(bytes))));
  if (r.cache == CacheKind::kNone || (r.cache != CacheKind::kDisk && bytes < kFileFrom))
    return in_memory(r, head);
  const fs::path path = cache_path(r, head);
  try {
    return through_file(r, head, path);
  } catch (const NoFile& e) {
    const auto cache = open_cache(path, head);  // files are whole at any time: no lock is needed to read
    if (cache)
      if (auto out = from_cache(r, *cache)) return std::move(*out);
    if (r.cache == CacheKind::kDisk)
      core::run_error(kCacheComponent, fmt::format("{}, or set data.cache to none", e.what()));
    auto out = in_memory(r, head, cache);
    out.notes.push_back(
        fmt::format("no cache file: {}; the images are held in memory and, unless an older "
                    "file has them, decoded at every start",
                    e.what()));
    return out;
  }
}

}  // namespace ebclr::data
