// Files of torch.save that were made to hurt: each is refused with a line, in little time and memory.

#include "run/torch_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <zlib.h>

#include <cstring>

#include "core/files.h"
#include "expect_error.h"
#include "run/stored_zip.h"

namespace ebclr::run {
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A zip of stored entries.
std::string zip(const std::vector<std::pair<std::string, std::string>>& entries, uint16_t method = 0) {
  std::string out, directory;
  for (const auto& [name, content] : entries) {
    const auto at = static_cast<uint32_t>(out.size());
    const auto sum =
        static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const auto size = static_cast<uint32_t>(content.size());
    const auto common = [&](std::string& to) {
      put<uint16_t>(to, 20), put<uint16_t>(to, 0), put<uint16_t>(to, method), put<uint32_t>(to, 0);
      put(to, sum), put(to, size), put(to, size), put(to, static_cast<uint16_t>(name.size())),
          put<uint16_t>(to, 0);
    };
    put<uint32_t>(out, 0x04034b50), common(out);
    out += name + content;
    put<uint32_t>(directory, 0x02014b50), put<uint16_t>(directory, 20), common(directory);
    put<uint16_t>(directory, 0), put<uint16_t>(directory, 0), put<uint16_t>(directory, 0),
        put<uint32_t>(directory, 0);
    put(directory, at);
    directory += name;
  }
  const auto start = static_cast<uint32_t>(out.size()), size = static_cast<uint32_t>(directory.size());
  const auto count = static_cast<uint16_t>(entries.size());
  out += directory;
  put<uint32_t>(out, 0x06054b50), put<uint32_t>(out, 0), put(out, count), put(out, count), put(out, size);
  put(out, start), put<uint16_t>(out, 0);
  return out;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

TorchFile parse(const std::string& program, const std::string& data = std::string(64, '\0')) {
  return parse_torch_file(bytes_of(zip({{"a/data.pkl", program}, {"a/data/0", data}})), "a.pt");
}

std::string number(int64_t v) {
  std::string out = "\x8a\x08";
  put(out, v);
  return out;
}
std::string word(const std::string& text) {
  std::string out = "X";
  put(out, static_cast<uint32_t>(text.size()));
  return out + text;
}
std::string tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const auto v : values) out += number(v);
  return out + "t";
}
/// The program of one float tensor of storage 0.
std::string tensor(int64_t offset, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage") + "ctorch\nFloatStorage\n" + word("0") +
         word("cpu") + number(16) + "tQ" + number(offset) + tuple(sizes) + tuple(strides) + "tR";
}

TEST(TorchFile, ReadsATensor) {
  std::string data;
  for (int i = 0; i < 16; ++i) put(data, static_cast<float>(i));
  const auto file = parse("\x80\x02" + tensor(1, {2, 3}, {4, 1}) + ".", data);
  ASSERT_TRUE(file.root().tensor());
  EXPECT_TRUE(file.root().tensor()->equal(torch::tensor({{1.f, 2.f, 3.f}, {5.f, 6.f, 7.f}})));
}

TEST(TorchFile, ViewsStayInsideTheirData) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  struct Bad {
    int64_t offset;
    std::vector<int64_t> sizes, strides;
  };
  for (const auto& [offset, sizes, strides] : std::vector<Bad>{{17, {1}, {1}},
                                                               {16, {1}, {1}},
                                                               {kHuge, {1}, {1}},
                                                               {-1, {1}, {1}},
                                                               {kHuge - 3, {4}, {1}},
                                                               {13, {4}, {1}},
                                                               {0, {17}, {1}},
                                                               {0, {2}, {16}},
                                                               {0, {kHuge}, {kHuge}},
                                                               {0, {4, 4, 4, 4}, {4, 4, 4, 4}},
                                                               {0, {16, 16}, {0, 1}},
                                                               {0, {16, 16, 16, 16}, {0, 0, 0, 0}},
                                                               {0, {1}, {-1}},
                                                               {kHuge, {0}, {1}},
                                                               {1, {}, {1}}})
    EXPECT_THROW(parse(tensor(offset, sizes, strides) + "."), core::Error)
        << offset << ", " << sizes.size() << " dimensions";
  EXPECT_EQ(parse(tensor(16, {0}, {1}) + ".").root().tensor()->numel(), 0);
}

TEST(TorchFile, NestingOfAnyDepthIsHarmless) {
  // Bottom-up, top-down through the memory, and a list that holds itself.
  EXPECT_TRUE(parse(")" + std::string(500'000, '\x85') + ".").root().sequence());
  std::string down = "]q\x01";
  for (int i = 0; i < 200'000; ++i)
    down +=
        "h\x01]q\x01"
        "a";
  EXPECT_NO_THROW(parse(down + "."));
  const auto self = parse(
      "]q\x01h\x01"
      "a.");
  EXPECT_EQ(self.root().sequence()->at(0).sequence(), self.root().sequence());
}

TEST(TorchFile, SmallFilesStaySmall) {
  const auto before = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto start = before();
  // One text of 16 kB recalled a million times; a storage rebuilt as often as the program is long.
  std::string texts = word(std::string(16'000, 'x')) + "q\x01";
  for (int i = 0; i < 1'000'000; ++i) texts += "h\x01";
  EXPECT_NO_THROW(parse(texts + "."));
  std::string names = word(std::string(16'000, 'x')) + "q\x01";
  for (int i = 0; i < 10'000; ++i) names += "h\x01h\x01\x93";
  EXPECT_THROW(parse(names + "."), core::Error);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += tensor(0, {250'000}, {1}) + "0";
  testing::expect_error(
      core::ExitCode::kUsage, [&] { parse(many + "N.", std::string(1'000'000, '\0')); },
      "far larger than the file");
  EXPECT_LT(before() - start, 500'000) << "kB";
}

TEST(TorchFile, ZipsThatLie) {
  const auto good = zip({{"a/data.pkl", "N."}});
  EXPECT_NO_THROW(parse_torch_file(bytes_of(good), "a.pt"));
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(parse_torch_file(bytes_of(good.substr(0, n)), "a.pt"), core::Error) << "cut at " << n;
  for (size_t at = 0; at < good.size(); ++at)
    for (const char value : {'\x00', '\x7f', '\xff'}) {
      auto bad = good;
      bad[at] = value;
      try {
        parse_torch_file(bytes_of(bad), "a.pt");
      } catch (const core::Error&) {
      }
    }
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        parse_torch_file(bytes_of(zip({{"a/data.pkl", "N."}}, 8)), "a.pt");
      },
      "packed");
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        parse_torch_file(bytes_of(zip({{"a/b/data.pkl", "N."}})), "a.pt");
      },
      "no data.pkl");
}

TEST(TorchFile, EveryByteOfAProgramMayBeWrong) {
  const std::string good = "\x80\x02}" + word("w") + tensor(0, {4}, {1}) + "s.";
  for (size_t at = 0; at < good.size(); ++at)
    for (int value = 0; value < 256; ++value) {
      auto bad = good;
      bad[at] = static_cast<char>(value);
      try {
        parse(bad);
      } catch (const core::Error&) {
      }
    }
}

}  // namespace
}  // namespace ebclr::run
