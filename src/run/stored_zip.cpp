#include "run/stored_zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstring>
#include <stdexcept>

namespace ebclr::run {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocator64Size = 20;
constexpr uint64_t kMaxEntries = 1'000'000;

/// Little-endian numbers of a file, each access checked.
class Bytes {
 public:
  explicit Bytes(std::string_view text) : text_(text) {}
  template <class T>
  T number(uint64_t at) const {
    T v;
    std::memcpy(&v, part(at, sizeof v).data(), sizeof v);
    return v;
  }
  std::string_view part(uint64_t at, uint64_t size) const {
    if (at > text_.size() || size > text_.size() - at) throw std::invalid_argument("it is cut short");
    return text_.substr(at, size);
  }
  size_t size() const { return text_.size(); }

 private:
  std::string_view text_;
};

struct Directory {
  uint64_t at = 0, entries = 0;
};

// The end record lies behind everything, with a comment of up to 64 kB after it.
Directory find_directory(const Bytes& file) {
  if (file.size() < kEndSize) throw std::invalid_argument("it is too short");
  const uint64_t last = file.size() - kEndSize, first = last > 0xffff ? last - 0xffff : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (file.number<uint32_t>(at) != kEnd) continue;
    Directory d{file.number<uint32_t>(at + 16), file.number<uint16_t>(at + 10)};
    if (at >= kLocator64Size && file.number<uint32_t>(at - kLocator64Size) == kLocator64) {
      const auto end64 = file.number<uint64_t>(at - kLocator64Size + 8);
      if (file.part(end64, kEnd64Size).size() == kEnd64Size && file.number<uint32_t>(end64) == kEnd64)
        d = {file.number<uint64_t>(end64 + 48), file.number<uint64_t>(end64 + 32)};
    }
    return d;
  }
  throw std::invalid_argument("it has no directory");
}

struct Entry {
  std::string name;
  uint64_t size, local_at, next;
  uint32_t sum;
};

Entry read_entry(const Bytes& file, uint64_t at) {
  if (file.number<uint32_t>(at) != kCentral) throw std::invalid_argument("its directory is damaged");
  const uint64_t name = file.number<uint16_t>(at + 28), extra = file.number<uint16_t>(at + 30),
                 comment = file.number<uint16_t>(at + 32);
  uint64_t packed = file.number<uint32_t>(at + 20), size = file.number<uint32_t>(at + 24),
           local = file.number<uint32_t>(at + 42);
  // Values that do not fit stand in an extra field, in this order.
  for (uint64_t e = at + kCentralSize + name, end = e + extra; e + 4 <= end;) {
    const auto id = file.number<uint16_t>(e), length = file.number<uint16_t>(e + 2);
    uint64_t v = e + 4;
    if (id == 1)
      for (uint64_t* field : {&size, &packed, &local})
        if (*field == 0xffffffff && v + 8 <= e + 4 + length) *field = file.number<uint64_t>(v), v += 8;
    e += 4 + length;
  }
  if (file.number<uint16_t>(at + 10) != 0 || packed != size)
    throw std::invalid_argument("an entry is packed; torch.save stores them plain");
  return {std::string(file.part(at + kCentralSize, name)), size, local,
          at + kCentralSize + name + extra + comment, file.number<uint32_t>(at + 16)};
}

}  // namespace

StoredZip::StoredZip(std::span<const std::byte> bytes) {
  const Bytes file({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto directory = find_directory(file);
  if (directory.entries > kMaxEntries) throw std::invalid_argument("it has too many entries");
  uint64_t at = directory.at;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const auto e = read_entry(file, at);
    at = e.next;
    if (file.number<uint32_t>(e.local_at) != kLocal) throw std::invalid_argument("an entry is damaged");
    const uint64_t start = e.local_at + kLocalSize + file.number<uint16_t>(e.local_at + 26) +
                           file.number<uint16_t>(e.local_at + 28);
    entries_.emplace(e.name, file.part(start, e.size));
    sums_.emplace(e.name, e.sum);
  }
}

std::string_view StoredZip::at(const std::string& name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) throw std::invalid_argument(fmt::format("it has no entry '{}'", name));
  const auto sum = ::crc32_z(0, reinterpret_cast<const Bytef*>(it->second.data()), it->second.size());
  if (sum != sums_.at(name)) throw std::invalid_argument(fmt::format("entry '{}' is damaged", name));
  return it->second;
}

}  // namespace ebclr::run
