// The benchmarks measure what they say: results agree before they are timed, and the numbers hang together.
// No time is compared with another.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/compare.h"
#include "bench/engine_bench.h"
#include "bench/ranks_bench.h"
#include "cpu/cost.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::bench {
namespace {

const BenchOptions kTiny{
    .batch = 2, .width = 16, .size = 16, .channels = 1, .sgld_steps = 2, .warmup = 0, .repeats = 1};

bool native_available() {
  return !cpu::available_kernels().empty();
}

TEST(Timing, InterleavesAfterWarmingUp) {
  std::string order;
  const auto t = interleave({{"a", [&] { order += 'a'; }}, {"b", [&] { order += 'b'; }}}, 2, 3);
  EXPECT_EQ(order, "aabbababab");
  EXPECT_LE(t[0].min, t[0].median);
}

TEST(EngineBench, EveryBenchmarkRunsAndVerifies) {
  if (!native_available()) GTEST_SKIP();
  BenchOptions simclr = kTiny;
  simclr.method = "simclr";
  simclr.batch_norm = true;
  simclr.channels_last = true;
  std::vector<EngineBench> results{bench_embed(kTiny), bench_sampler(kTiny), bench_step(kTiny),
                                   bench_step(simclr)};
  for (const EngineBench& b : results) {
    EXPECT_LT(b.error, 1e-3) << b.what;
    EXPECT_GT(b.native.min, 0) << b.what;
  }
  const auto json = to_json(results);
  ASSERT_EQ(json.size(), 4u);
  for (const auto& object : json) {
    for (const char* key : {"method", "batch", "width", "size", "channels", "ratio_released", "ratio_lean"}) {
      EXPECT_TRUE(object.contains(key)) << key;
    }
    for (const char* key : {"released", "lean", "native"})
      EXPECT_GT(object["ms_per_image"][key].get<double>(), 0);
    EXPECT_NEAR(object["ratio_lean"].get<double>(),
                object["ms_per_image"]["lean"].get<double>() / object["ms_per_image"]["native"].get<double>(),
                1e-6);
  }
  EXPECT_EQ(json[2]["method"], "ebclr");
  EXPECT_EQ(json[3]["method"], "simclr");
  EXPECT_TRUE(json[3]["channels_last"].get<bool>());
}

TEST(EngineBench, LargerStemsRun) {
  if (!native_available()) GTEST_SKIP();
  for (const char* stem : {"imagenet", "patch"}) {
    BenchOptions o = kTiny;
    o.stem = stem;
    o.size = 32;
    const EngineBench b = bench_step(o);
    EXPECT_LT(b.error, 1e-3) << stem;
    EXPECT_EQ(to_json(std::vector{b})[0]["stem"], stem);
  }
}

TEST(NeighbourBench, MeasuresEveryRivalTwice) {
  if (!native_available()) GTEST_SKIP();
  const auto results = bench_neighbour(kTiny);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].what, "native");
  for (const auto& b : results) {
    EXPECT_GT(b.alone.median, 0);
    EXPECT_GT(b.beside.median, 0);
  }
}

nlohmann::json rows(double native, double lean, double median) {
  return nlohmann::json::array(
      {{{"bench", "step"},
        {"method", "ebclr"},
        {"batch_norm", false},
        {"batch", 64},
        {"width", 64},
        {"size", 32},
        {"channels", 3},
        {"threads", 2},
        {"instructions", "avx2"},
        {"ms_per_image", {{"native", native}, {"lean", lean}, {"released", 4 * lean}}},
        {"ms_per_image_median", {{"native", median}, {"lean", lean}, {"released", 4 * lean}}}}});
}

TEST(Compare, TellsASlowerBuildFromASlowerMachine) {
  const nlohmann::json before = rows(10, 30, 10.2);
  // Everything a half slower: the machine.
  EXPECT_FALSE(compare(before, rows(15, 45, 15.2))[0].slower());
  // libtorch as before, ours a fifth slower.
  const auto slower = compare(before, rows(12, 30, 12.1));
  EXPECT_TRUE(slower[0].slower());
  EXPECT_NEAR(slower[0].change(), 0.2, 1e-9);
  // The same, but its repeats differ by a third.
  EXPECT_FALSE(compare(before, rows(12, 30, 16))[0].slower());
  EXPECT_TRUE(compare(before, rows(8, 30, 8.1))[0].faster());
  nlohmann::json other = rows(10, 30, 10);
  other[0]["batch"] = 16;
  EXPECT_TRUE(compare(before, other).empty());
}

TEST(Compare, TurnsBecomeOneMeasurement) {
  const auto merged = merge({rows(12, 33, 13), rows(10, 30, 11), rows(11, 36, 18)});
  ASSERT_EQ(merged.size(), 1u);
  EXPECT_EQ(merged[0]["ms_per_image"]["native"].get<double>(), 10);
  EXPECT_EQ(merged[0]["ms_per_image"]["lean"].get<double>(), 30);
  EXPECT_EQ(merged[0]["ms_per_image_median"]["native"].get<double>(), 13);
  EXPECT_EQ(merged[0]["batch"], rows(1, 1, 1)[0]["batch"]);
}

TEST(Compare, RunsAnotherBuild) {
  const testing::TempDir dir;
  const std::string program = (dir / "other").string();
  std::ofstream(program) << "#!/bin/sh\n[ \"$1 $2 $3 $4\" = \"bench step --json it's\" ] && echo '"
                         << rows(10, 30, 10.5).dump() << "'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  EXPECT_TRUE(is_program(program));
  EXPECT_EQ(results_of(program, {"it's"}), rows(10, 30, 10.5));
  testing::expect_error(
      core::ExitCode::kRunFailed, [&] { results_of(program, {"other options"}); }, "is it a build of ebclr?");
}

TEST(Compare, SaysWhatIsWrongWithTheFile) {
  testing::expect_error(
      core::ExitCode::kUsage, [] { compare(nlohmann::json::parse("[{}]"), rows(1, 1, 1)); }, "bench --json");
  // No integer is that large.
  for (const char* key : {"batch", "threads", "sgld_steps"}) {
    auto before = rows(1, 1, 1);
    before[0][key] = 1e300;
    testing::expect_error(
        core::ExitCode::kUsage, [&] { compare(before, rows(1, 1, 1)); }, "bench --json");
  }
  const testing::TempDir dir;
  std::ofstream(dir / "deep") << std::string(100000, '[') << std::string(100000, ']');
  testing::expect_error(
      core::ExitCode::kUsage, [&] { read_results((dir / "deep").string()); }, "not a list of results");
}

TEST(RanksBench, WithoutALogThereIsNoChild) {
  const testing::TempDir dir;
  const pid_t self = ::getpid();
  const RanksOptions options{
      .scratch = dir / "gone",
      .command = [](const std::filesystem::path&, int, int64_t) { return std::vector<std::string>{"true"}; }};
  std::string said;
  try {
    bench_ranks(options);
  } catch (const core::Error& e) {
    if (::getpid() != self) ::_exit(0);  // a child that unwinds like its parent
    said = e.what();
  }
  EXPECT_NE(said.find("gone/threads0.rank0.log"), std::string::npos) << said;
  EXPECT_EQ(::waitpid(-1, nullptr, 0), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ConvBench, LayersAgreeWithTorch) {
  if (!native_available()) GTEST_SKIP();
  const auto results = bench_conv(kTiny);
  ASSERT_EQ(results.size(), 7u * 3);
  for (const ConvBench& b : results) EXPECT_LT(b.error, 1e-4) << b.layer << ' ' << b.pass;
  EXPECT_EQ(to_json(results).size(), results.size());
}

TEST(EngineBench, RefusesUnknownMethods) {
  testing::expect_error(
      core::ExitCode::kUsage, [] { bench_step({.method = "mocko"}); }, "mocko");
}

TEST(PassCost, CountsProducts) {
  // One stage's worth by hand: width 8, 4x4 images, blocks of the first stage only where sizes stay 4x4.
  const cpu::PassCost cost = cpu::pass_cost({.channels = 1, .width = 8, .blocks = {1, 0, 0, 0}}, 4, 4);
  EXPECT_DOUBLE_EQ(cost.direct, 2.0 * 16 * (9 * 8 + 2 * 9 * 64));
  EXPECT_DOUBLE_EQ(cost.fast, 2.0 * (16 * 9 * 8 + 2 * 36 * 64));
}

}  // namespace
}  // namespace ebclr::bench
