#include "core/safetensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "core/files.h"
#include "core/rng.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::core {
namespace {

std::vector<std::byte> make(const std::string& header, size_t body) {
  const uint64_t size = header.size();
  std::vector<std::byte> out(8 + header.size() + body);
  std::memcpy(out.data(), &size, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  return out;
}

TEST(SafeTensors, RoundTrips) {
  testing::TempDir dir;
  SafeTensors content;
  content.tensors["a.weight"] = torch::randn({3, 4});
  content.tensors["count"] = torch::tensor(int64_t{7});
  content.tensors["half"] = torch::randn({5}).to(torch::kFloat16);
  content.tensors["empty"] = torch::empty({0, 3});
  content.metadata["version"] = "1";
  write_safetensors(dir / "x.safetensors", content);
  const auto back = read_safetensors(dir / "x.safetensors");
  ASSERT_EQ(back.tensors.size(), 4u);
  for (const auto& [name, t] : content.tensors) EXPECT_TRUE(torch::equal(back.at(name, "x"), t)) << name;
  EXPECT_EQ(back.metadata.at("version"), "1");
  testing::expect_error(
      ExitCode::kUsage, [&] { back.at("b", "x.safetensors"); }, "no tensor named 'b'");
}

TEST(SafeTensors, EqualContentGivesEqualBytes) {
  testing::TempDir dir;
  SafeTensors content;
  content.tensors["b"] = torch::arange(5);
  content.tensors["a"] = torch::arange(3);
  write_safetensors(dir / "1", content);
  write_safetensors(dir / "2", content);
  EXPECT_EQ(sha256_file(dir / "1", "t"), sha256_file(dir / "2", "t"));
  EXPECT_EQ(read_text(dir / "1", "t"), to_bytes(content));
}

TEST(SafeTensors, MetadataNeedNotBeUtf8) {
  SafeTensors content;
  content.metadata["data"] = "caf\xe9";
  const auto bytes = to_bytes(content);
  EXPECT_EQ(parse_safetensors(std::as_bytes(std::span(bytes)), "x").metadata.at("data"), "caf\xef\xbf\xbd");
}

TEST(SafeTensors, RefusesBadInput) {
  const auto refuse = [](const std::vector<std::byte>& bytes, const std::string& fragment) {
    testing::expect_error(
        ExitCode::kUsage, [&] { parse_safetensors(bytes, "x.st"); }, "x.st", "offset", fragment);
  };
  refuse({}, "ends inside");
  refuse(make("[]", 0), "not a JSON object");
  refuse(make("{", 0), "not a JSON object");
  refuse(make(R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}", 0),
         "not a JSON object");
  refuse(make(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7), "outside");
  refuse(make(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "do not fit");
  refuse(make(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
         "impossible size");
  refuse(make(R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4), "unknown dtype");
  refuse(make(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 8), "outside");
  refuse(make(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4),
         "not a non-negative integer");
  refuse(
      make(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4),
      "overlap");
  refuse(make(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8), "belong to no tensor");
  auto lying = make("{}", 0);
  lying[7] = std::byte{0x7f};  // a header of 2^62 bytes
  refuse(lying, "only 2 follow");
}

TEST(SafeTensors, SurvivesTruncationAndCorruption) {
  testing::TempDir dir;
  SafeTensors content;
  content.tensors["a"] = torch::randn({3, 4});
  content.tensors["b"] = torch::arange(6);
  write_safetensors(dir / "x", content);
  const auto good = read_bytes(dir / "x", "test");
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(parse_safetensors(std::span(good).first(n), "cut"), Error);
  Rng rng(6, Stream::kEval);
  for (int round = 0; round < 2000; ++round) {
    auto bad = good;
    for (int k = 0; k < 3; ++k) bad[rng.below(150)] = static_cast<std::byte>(rng.next_u32());
    try {
      parse_safetensors(bad, "fuzz");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ebclr::core
