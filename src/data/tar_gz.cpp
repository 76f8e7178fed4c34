#include "data/tar_gz.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/files.h"

namespace ebclr::data {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTarGzComponent = "data.archive";

class GzipReader {
 public:
  explicit GzipReader(const fs::path& path) : path_(path), file_(nullptr, gzclose) {
    std::error_code ec;
    if (fs::is_regular_file(path, ec)) file_.reset(gzopen(path.c_str(), "rb"));  // a pipe would hang
    if (!file_) core::usage_error(kTarGzComponent, fmt::format("{}: cannot be opened", path.string()));
    const auto stored = fs::file_size(path, ec);
    gzbuffer(file_.get(),
             static_cast<unsigned>(std::clamp<uint64_t>(ec ? 1 << 18 : stored, 1 << 13, 1 << 18)));
    if (gzdirect(file_.get()))
      core::usage_error(kTarGzComponent,
                        fmt::format("{}: offset 0: not gzip data (magic 1f 8b expected)", path.string()));
  }

  // Reads up to `size` bytes; fewer only at the end.
  size_t read(void* to, size_t size) {
    const int n = gzread(file_.get(), to, static_cast<unsigned>(size));
    int code = Z_OK;
    gzerror(file_.get(), &code);
    if (n < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR)
      core::usage_error(kTarGzComponent, fmt::format("{}: offset {}: gzip data is {}", path_.string(),
                                                     offset_, code == Z_BUF_ERROR ? "truncated" : "damaged"));
    offset_ += n;
    return static_cast<size_t>(n);
  }
  void read_exactly(void* to, size_t size) {
    if (read(to, size) != size)
      core::usage_error(kTarGzComponent, fmt::format("{}: offset {}: the archive ends inside a member",
                                                     path_.string(), offset_));
  }
  uint64_t offset() const { return offset_; }

 private:
  fs::path path_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
  uint64_t offset_ = 0;
};

std::span<const std::byte> bytes_of(const std::vector<char>& v, size_t n) {
  return std::as_bytes(std::span(v.data(), n));
}

constexpr size_t kBlock = 512;
using Block = std::array<unsigned char, kBlock>;

uint64_t octal(const Block& block, size_t at, size_t size) {
  uint64_t v = 0;
  for (size_t i = at; i < at + size; ++i) {
    if (block[i] == ' ' || block[i] == 0) continue;
    if (block[i] < '0' || block[i] > '7') return ~uint64_t{0};
    v = v * 8 + (block[i] - '0');
  }
  return v;
}

// The header's own checksum: the sum of its bytes with the field itself as blanks.
bool checksum_holds(const Block& block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : block[i];
  return sum == octal(block, 148, 8);
}

}  // namespace

void gunzip(const fs::path& source, const fs::path& target, uint64_t limit) {
  GzipReader in(source);
  core::AtomicFile out(target, kTarGzComponent);
  std::vector<char> buffer(1 << 16);
  while (const size_t n = in.read(buffer.data(), buffer.size())) {
    if (in.offset() > limit)
      core::usage_error(kTarGzComponent, fmt::format("{}: holds more than {} bytes", source.string(), limit));
    out.write(bytes_of(buffer, n));
  }
  out.commit();
}

void extract(const fs::path& archive, const std::map<std::string, fs::path>& wanted, uint64_t limit) {
  GzipReader in(archive);
  std::set<std::string> missing;
  for (const auto& [name, path] : wanted) missing.insert(name);
  std::vector<char> buffer(1 << 16);
  Block block{};
  while (!missing.empty() && in.read(block.data(), kBlock) == kBlock) {
    if (block[0] == 0) break;  // the archive's end
    const uint64_t at = in.offset() - kBlock;
    if (!checksum_holds(block))
      core::usage_error(kTarGzComponent,
                        fmt::format("{}: offset {}: damaged tar header", archive.string(), at));
    uint64_t size = octal(block, 124, 12);
    if (size > (uint64_t{1} << 36))
      core::usage_error(kTarGzComponent,
                        fmt::format("{}: offset {}: member size out of range", archive.string(), at + 124));
    const std::string path(reinterpret_cast<const char*>(block.data()),
                           std::find(block.begin(), block.begin() + 100, 0) - block.begin());
    const std::string name = path.substr(path.find_last_of('/') + 1);
    const auto target = wanted.find(name);
    const bool take =
        (block[156] == '0' || block[156] == 0) && target != wanted.end() && missing.contains(name);
    if (take && size > limit)
      core::usage_error(kTarGzComponent, fmt::format("{}: {} holds {} bytes; expected at most {}",
                                                     archive.string(), name, size, limit));
    std::unique_ptr<core::AtomicFile> out;
    if (take) out = std::make_unique<core::AtomicFile>(target->second, kTarGzComponent);
    uint64_t left = (size + kBlock - 1) / kBlock * kBlock;
    while (left > 0) {
      const auto part = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
      in.read_exactly(buffer.data(), part);
      const auto useful = static_cast<size_t>(std::min<uint64_t>(size, part));
      if (out) out->write(bytes_of(buffer, useful));
      size -= useful;
      left -= part;
    }
    if (out) {
      out->commit();
      missing.erase(name);
    }
  }
  if (!missing.empty())
    core::usage_error(kTarGzComponent,
                      fmt::format("{}: has no member {}", archive.string(), *missing.begin()));
}

}  // namespace ebclr::data
