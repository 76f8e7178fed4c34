#include "train/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_error.h"

namespace ebclr::train {
namespace {

std::string value_of(const Advice& a, const std::string& key) {
  for (const auto& [k, v] : a.values)
    if (k == key) return v;
  return "";
}

run::Config config_of(const Advice& a) {
  return run::resolve({{"advice", a.values}});
}

TEST(Advice, FollowsTheSizeOfThePictures) {
  EXPECT_EQ(value_of(advise({.images = 5000, .median_side = 1080}), "data.image_size"), "128");
  EXPECT_EQ(value_of(advise({.images = 5000, .median_side = 120}), "data.image_size"), "64");
  EXPECT_EQ(value_of(advise({.images = 5000, .median_side = 32}), "data.image_size"), "32");
  EXPECT_EQ(value_of(advise({.images = 5000, .median_side = 32, .image_size = 96}), "data.image_size"), "96");
  EXPECT_EQ(value_of(advise({.images = 5000, .median_side = 32}), "encoder.stem"), "") << "the paper's";
  EXPECT_NE(value_of(advise({.images = 5000, .median_side = 640}), "encoder.stem"), "");
}

TEST(Advice, FewImagesGetSmallBatches) {
  EXPECT_EQ(value_of(advise({.images = 50000, .median_side = 640}), "train.batch_size"), "64");
  EXPECT_EQ(value_of(advise({.images = 259, .median_side = 640}), "train.batch_size"), "16");
  EXPECT_EQ(value_of(advise({.images = 20, .median_side = 640}), "train.batch_size"), "8");
  for (int64_t images : {20, 259, 50000}) config_of(advise({.images = images, .median_side = 640}));
}

TEST(Advice, FillsTheBudgetAndKeepsTheBufferUseful) {
  const auto config = config_of(advise({.images = 2000, .median_side = 640}));
  const auto a = fit_budget(config, 1800, {3, 128, 128}, 0.5, 1800);
  const int64_t steps = 1800 / config.train.batch_size, epochs = std::stoll(value_of(a, "train.epochs"));
  EXPECT_LE(static_cast<double>(epochs * steps) * 0.5, 1800);
  EXPECT_GT(static_cast<double>((epochs + 1) * steps) * 0.5, 1800);
  const int64_t chains = std::stoll(value_of(a, "buffer.size"));
  EXPECT_LE(chains * 3 * 128 * 128 * 4, 128'000'000);
  EXPECT_GE(epochs * steps * config.train.batch_size / chains, 20) << "visits of a chain";
  // 259 images at 64 pixels once carried 513 MB, and 4 steps an epoch left no line in the log.
  const auto few = config_of(advise({.images = 259, .median_side = 640, .image_size = 64}));
  const auto small = fit_budget(few, 233, {3, 64, 64}, 0.2, 600);
  EXPECT_LE(std::stoll(value_of(small, "buffer.size")) * 3 * 64 * 64 * 4, 128'000'000);
  EXPECT_LE(std::stoll(value_of(small, "log.every")), 233 / few.train.batch_size);
  // A budget that is too short gives one epoch and says so.
  const auto tight = fit_budget(config, 1800, {3, 128, 128}, 100, 60);
  EXPECT_EQ(value_of(tight, "train.epochs"), "1");
  EXPECT_THAT(tight.reasons,
              ::testing::Contains(::testing::HasSubstr("longer than the 1 min 00 s asked for")));
}

TEST(Duration, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(parse_duration("30m"), 1800);
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("1h30m"), 5400);
  EXPECT_EQ(parse_duration("1.5h"), 5400);
  EXPECT_EQ(parse_duration("20"), 1200);
  for (const char* wrong : {"", "soon", "-5m", "10d", "0s", "1e99h"})
    testing::expect_error(
        core::ExitCode::kUsage, [&] { parse_duration(wrong); }, "budget");
}

}  // namespace
}  // namespace ebclr::train
