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

std::vector<std::string> texts(const Advice& a) {
  return reasons_left(a, {});
}

run::Config config_of(const Advice& size, int64_t images) {
  return run::resolve({{"advice", size.values}, {"advice", advise_batch(images).values}});
}

TEST(Advice, FollowsTheSizeOfThePictures) {
  EXPECT_EQ(value_of(advise({.median_side = 1080}), "data.image_size"), "128");
  EXPECT_EQ(value_of(advise({.median_side = 120}), "data.image_size"), "64");
  EXPECT_EQ(value_of(advise({.median_side = 32}), "data.image_size"), "32");
  EXPECT_EQ(value_of(advise({.median_side = 32, .image_size = 96}), "data.image_size"), "96");
  EXPECT_EQ(value_of(advise({.median_side = 32}), "encoder.stem"), "") << "the paper's";
  EXPECT_NE(value_of(advise({.median_side = 640}), "encoder.stem"), "");
}

TEST(Advice, FewImagesGetSmallBatches) {
  const auto batch = [](int64_t images) { return value_of(advise_batch(images), "train.batch_size"); };
  EXPECT_EQ(batch(50000), "64");
  EXPECT_EQ(batch(233), "16");
  EXPECT_EQ(batch(18), "8");
  // More than there are could not be trained on.
  EXPECT_EQ(batch(7), "7");
  EXPECT_EQ(batch(3), "3");
  EXPECT_EQ(batch(1), "1");
  EXPECT_THAT(texts(advise_batch(3)),
              ::testing::ElementsAre("batches of 3: there are 3 images to learn from"));
  EXPECT_TRUE(advise_batch(50000).reasons.empty());
}

TEST(Advice, WhatTheUserSetsHasNoReason) {
  using ::testing::Contains;
  using ::testing::HasSubstr;
  using ::testing::Not;
  const auto size = advise({.median_side = 640});
  EXPECT_THAT(reasons_left(size, {}), Contains(HasSubstr("width 32")));
  const auto left = reasons_left(size, {{"--set", {{"encoder.width", "8"}}}});
  EXPECT_THAT(left, Not(Contains(HasSubstr("width"))));
  EXPECT_THAT(left, Contains(HasSubstr("patches"))) << "that was chosen all the same";
  EXPECT_THAT(reasons_left(advise_batch(50), {{"--set", {{"train.batch_size", "4"}}}}), ::testing::IsEmpty());
  // What is derived from the epochs is derived from those that there will be.
  const run::Layer user{"--epochs", {{"train.epochs", "2"}}};
  auto values = size.values;
  values.emplace_back("train.batch_size", "16");
  const auto config = run::resolve({{"advice", values}, user});
  const auto fitted = fit_budget(config, 160, {3, 128, 128}, 0.1, 1800);
  EXPECT_EQ(value_of(fitted, "train.epochs"), "2");
  EXPECT_EQ(value_of(fitted, "checkpoint.every_epochs"), "1");
  EXPECT_THAT(reasons_left(fitted, {user}), Not(Contains(HasSubstr("epochs"))));
  EXPECT_THAT(reasons_left(fitted, {user}), Contains(HasSubstr("visited about 10 times")));
  EXPECT_THAT(reasons_left(fitted, {user, {"--set", {{"buffer.size", "77"}}}}), ::testing::IsEmpty());
}

TEST(Advice, FillsTheBudgetAndKeepsTheBufferUseful) {
  const auto config = config_of(advise({.median_side = 640}), 1800);
  const auto a = fit_budget(config, 1800, {3, 128, 128}, 0.5, 1800);
  const int64_t steps = 1800 / config.train.batch_size, epochs = std::stoll(value_of(a, "train.epochs"));
  EXPECT_LE(static_cast<double>(epochs * steps) * 0.5, 1800);
  EXPECT_GT(static_cast<double>((epochs + 1) * steps) * 0.5, 1800);
  const int64_t chains = std::stoll(value_of(a, "buffer.size"));
  EXPECT_LE(chains * 3 * 128 * 128 * 4, 128'000'000);
  EXPECT_GE(epochs * steps * config.train.batch_size / chains, 20) << "visits of a chain";
  // 259 images at 64 pixels once carried 513 MB, and 4 steps an epoch left no line in the log.
  const auto few = config_of(advise({.median_side = 640, .image_size = 64}), 233);
  const auto small = fit_budget(few, 233, {3, 64, 64}, 0.2, 600);
  EXPECT_LE(std::stoll(value_of(small, "buffer.size")) * 3 * 64 * 64 * 4, 128'000'000);
  EXPECT_LE(std::stoll(value_of(small, "log.every")), 233 / few.train.batch_size);
  // A budget that is too short gives one epoch and says so.
  const auto tight = fit_budget(config, 1800, {3, 128, 128}, 100, 60);
  EXPECT_EQ(value_of(tight, "train.epochs"), "1");
  EXPECT_THAT(texts(tight),
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
