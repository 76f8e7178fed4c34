#include "train/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

namespace ebclr::train {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

// Fields of event.proto, summary.proto: number, and wire type 0 (varint), 1 (8 bytes), 2 (length), 5 (4
// bytes).
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2, kImage = 4;
constexpr int kHeight = 1, kWidth = 2, kColourSpace = 3, kEncoded = 4;
constexpr int kStatus = 1, kStart = 1;

void put_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

void put_key(std::string& out, int field, int wire) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void put_number(std::string& out, int field, int64_t v) {
  put_key(out, field, 0);
  put_varint(out, static_cast<uint64_t>(v));
}

template <class T>
void put_raw(std::string& out, T v) {
  out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
}

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? c >> 1 ^ 0x82f63b78U : c >> 1;
    table[i] = c;
  }
  return table;
}

// A checksum of data that holds checksums is weak; TFRecord therefore turns and shifts it.
uint32_t masked(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_table();
  uint32_t c = ~0U;
  for (const char b : bytes) c = kTable[(c ^ static_cast<uint8_t>(b)) & 0xff] ^ c >> 8;
  return ~c;
}

EventFile::EventFile(const std::filesystem::path& folder) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  // A run that is resumed within a second by the same process number still gets a file of its own.
  std::error_code ec;
  for (int i = 0; i == 0 || std::filesystem::exists(std::filesystem::symlink_status(path_, ec)); ++i)
    path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", now, host, ::getpid(), i);
  file_ = std::make_unique<core::AppendFile>(path_, "train.tensorboard");
  write(0, kFileVersion, "brain.Event:2");
}

void EventFile::write(int64_t step, int field, std::string_view message) {
  std::string event;
  put_key(event, kWallTime, 1);
  put_raw(event, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  if (step != 0) put_number(event, kStep, step);
  put_bytes(event, field, message);

  std::string record;
  put_raw(record, static_cast<uint64_t>(event.size()));
  put_raw(record, masked(record));
  record += event;
  put_raw(record, masked(event));
  file_->append(record);
}

void EventFile::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    put_bytes(value, kTag, tag);
    put_key(value, kSimpleValue, 5);
    put_raw(value, static_cast<float>(number));
    put_bytes(summary, kValue, value);
  }
  if (!summary.empty()) write(step, kSummary, summary);
}

void EventFile::picture(int64_t step, const std::string& tag, int width, int height,
                        std::span<const std::byte> png) {
  std::string image;
  put_number(image, kHeight, height);
  put_number(image, kWidth, width);
  put_number(image, kColourSpace, 3);  // RGB
  put_bytes(image, kEncoded, {reinterpret_cast<const char*>(png.data()), png.size()});
  std::string value, summary;
  put_bytes(value, kTag, tag);
  put_bytes(value, kImage, image);
  put_bytes(summary, kValue, value);
  write(step, kSummary, summary);
}

void EventFile::restart(int64_t step) {
  std::string log;
  put_number(log, kStatus, kStart);
  write(step, kSessionLog, log);
}

}  // namespace ebclr::train
