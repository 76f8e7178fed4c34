#include "core/npy.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "core/files.h"
#include "core/rng.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::core {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto s = std::as_bytes(std::span(text.data(), text.size()));
  return {s.begin(), s.end()};
}

std::vector<std::byte> make_npy(std::string header, size_t body) {
  std::string text = "\x93NUMPY";
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header + std::string(body, '\1');
  return bytes_of(text);
}

TEST(Npy, RoundTripsEveryType) {
  testing::TempDir dir;
  for (auto dtype :
       {torch::kFloat32, torch::kFloat64, torch::kInt64, torch::kInt32, torch::kUInt8, torch::kBool}) {
    const auto t = (torch::arange(24).view({2, 3, 4}) % 7).to(dtype);
    write_npy(dir / "a.npy", t);
    const auto back = read_npy(dir / "a.npy");
    EXPECT_EQ(back.scalar_type(), dtype);
    EXPECT_TRUE(torch::equal(back, t));
  }
  write_npy(dir / "t.npy", torch::arange(6).view({2, 3}).t());  // not contiguous
  EXPECT_TRUE(torch::equal(read_npy(dir / "t.npy"), torch::arange(6).view({2, 3}).t()));
  write_npy(dir / "s.npy", torch::tensor(3.5));
  EXPECT_EQ(read_npy(dir / "s.npy").item<float>(), 3.5f);
}

TEST(Npy, ReadsFortranOrder) {
  std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n";
  auto bytes = make_npy(header, 0);
  for (int i = 0; i < 6; ++i) bytes.push_back(static_cast<std::byte>(i));
  const auto t = parse_npy(bytes, "x");
  EXPECT_EQ(t[0][1].item<int>(), 2);
  EXPECT_EQ(t[1][0].item<int>(), 1);
}

TEST(Npy, RefusesBadInput) {
  const auto refuse = [](std::vector<std::byte> bytes, const std::string& fragment) {
    testing::expect_error(
        ExitCode::kUsage, [&] { parse_npy(bytes, "x.npy"); }, "x.npy", "offset", fragment);
  };
  refuse(bytes_of("hello"), "magic");
  refuse({}, "magic");
  refuse(make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", 15),
         "expected 16 bytes of data, found 15");
  refuse(make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,), }", 16), "expected");
  refuse(make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999999,), }", 16),
         "impossible size");
  refuse(make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,4294967296,), }", 16),
         "impossible array size");
  refuse(make_npy("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", 16), "'|O' is not supported");
  refuse(make_npy("{'descr': '<f4', 'fortran_order': nan, 'shape': (4,), }", 16), "True or False");
  refuse(make_npy("{'descr': '<f4', 'shape': (4,), }", 16), "lacks");
  refuse(make_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }", 16), "expected a size");
}

TEST(Npy, SurvivesTruncationAndCorruption) {
  testing::TempDir dir;
  write_npy(dir / "a.npy", torch::arange(40).to(torch::kFloat32));
  const auto good = read_bytes(dir / "a.npy", "test");
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(parse_npy(std::span(good).first(n), "cut"), Error) << n;
  Rng rng(5, Stream::kEval);
  for (int round = 0; round < 2000; ++round) {
    auto bad = good;
    for (int k = 0; k < 3; ++k) bad[rng.below(128)] = static_cast<std::byte>(rng.next_u32());
    try {
      parse_npy(bad, "fuzz");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ebclr::core
