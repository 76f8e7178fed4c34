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

run::Config asked(std::vector<std::pair<std::string, std::string>> user) {
  return run::resolve({{"--set", std::move(user)}});
}

std::string get(const run::Config& c, const std::string& key) {
  for (const auto& f : run::fields())
    if (f.key == key) return f.get(c);
  return "no such key";
}

TEST(Advice, TakesTheRecipeFast) {
  std::vector<std::string> warnings;
  const auto fast = run::resolve({run::read_layer("fast", warnings)});
  const auto c = config_of(advise({.median_side = 32}), 5000);
  for (const char* key :
       {"method.name", "sampler.chains", "sampler.steps", "balance.kind", "buffer.rho", "encoder.init",
        "encoder.width", "optimizer.lr", "optimizer.schedule", "optimizer.warmup_epochs", "train.batch_size"})
    EXPECT_EQ(get(c, key), get(fast, key)) << key;
  EXPECT_DOUBLE_EQ(methods::forward_units(c.method, c.train.batch_size), 7.625);
  using ::testing::Contains;
  using ::testing::HasSubstr;
  const auto a = advise({.median_side = 32});
  EXPECT_THAT(texts(a), Contains(HasSubstr("one chain for eight images")));
  EXPECT_THAT(reasons_left(a, {{"--set", {{"sampler.chains", "0"}}}}),
              ::testing::Not(Contains(HasSubstr("one chain"))));
}

TEST(Advice, OfARecipeOnlyWhatGoesWithTheRest) {
  const auto without = advise({.median_side = 32}, asked({{"method.lambda", "0"}}));
  for (const char* key : {"sampler.chains", "sampler.steps", "balance.kind"})
    EXPECT_EQ(value_of(without, key), "") << key << ": there are no chains";
  EXPECT_EQ(value_of(without, "optimizer.lr"), "0.001");
  EXPECT_EQ(value_of(without, "optimizer.warmup_epochs"), "1");
  // Two rules for the sampler at once would be an error.
  EXPECT_EQ(value_of(advise({.median_side = 32}, asked({{"adaptive.on", "true"}})), "balance.kind"), "");
  const auto yopo = advise({.median_side = 32}, asked({{"sampler.kind", "yopo"}}));
  EXPECT_EQ(value_of(yopo, "sampler.steps"), "") << "it has none";
  EXPECT_EQ(value_of(yopo, "sampler.chains"), "0.125");
}

TEST(Advice, RivalsKeepTheirOwnRateAndWeights) {
  for (const char* method : {"simclr", "byol", "supervised"}) {
    const run::Layer user{"--set", {{"method.name", method}}};
    const auto a = advise({.median_side = 32}, run::resolve({user}));
    const auto c = run::resolve({{"advice", a.values}, {"advice", advise_batch(5000).values}, user});
    const auto own = run::resolve({user, {"batch", {{"train.batch_size", "64"}}}});
    for (const char* key : {"method.name", "optimizer.kind", "optimizer.lr", "optimizer.warmup_epochs",
                            "encoder.init", "encoder.norm", "sampler.chains", "balance.kind"})
      EXPECT_EQ(get(c, key), get(own, key)) << method << " " << key;
    EXPECT_DOUBLE_EQ(c.effective_lr(), own.effective_lr()) << method;
    EXPECT_EQ(get(c, "encoder.width"), "16") << "that is a matter of the images";
    const auto fitted = fit_budget(c, 5000, {3, 32, 32}, 0.1, 600);
    EXPECT_EQ(value_of(fitted, "optimizer.warmup_epochs"), "") << method;
    EXPECT_EQ(value_of(fitted, "buffer.size"), "") << method;
  }
}

TEST(Advice, EveryRankHasAChain) {
  const auto c = config_of(advise({.median_side = 32}), 40);  // batches of 8, one chain
  ASSERT_EQ(c.train.batch_size, 8);
  EXPECT_TRUE(advise_ranks(c, 1).values.empty());
  const auto two = advise_ranks(c, 2);
  EXPECT_EQ(value_of(two, "sampler.chains"), "2");
  EXPECT_THAT(texts(two), ::testing::ElementsAre(::testing::HasSubstr("one for each rank")));
  EXPECT_TRUE(advise_ranks(config_of(advise({.median_side = 32}), 5000), 8).values.empty());
  EXPECT_TRUE(advise_ranks(asked({{"method.name", "simclr"}}), 300).values.empty());
}

TEST(Advice, ShortRunsWarmUpForAFifthOfThem) {
  const auto c = config_of(advise({.median_side = 32}), 800);
  const auto warm = [&](double budget) {  // an epoch takes 10 s
    return value_of(
        fit_budget(c, 800, {3, 32, 32}, 10.0 / static_cast<double>(800 / c.train.batch_size), budget),
        "optimizer.warmup_epochs");
  };
  EXPECT_EQ(warm(10.5), "0.2");
  EXPECT_EQ(warm(20.5), "0.4");
  EXPECT_EQ(warm(1000), "1");
}

TEST(Advice, SaysWhereItStopsThoughThereIsTime) {
  using ::testing::Contains;
  using ::testing::HasSubstr;
  const auto c = config_of(advise({.median_side = 32}), 40);
  const auto quick = fit_budget(c, 40, {3, 32, 32}, 0.001, 600);
  EXPECT_EQ(value_of(quick, "train.epochs"), "400");
  EXPECT_THAT(texts(quick), Contains("400 epochs are the most that is chosen; --epochs for more"));
  EXPECT_THAT(texts(quick),
              Contains(HasSubstr("a step takes less than 0.01 s here, an epoch less than a second")));
  const auto filled = fit_budget(c, 40, {3, 32, 32}, 1, 600);
  EXPECT_THAT(texts(filled), ::testing::Not(Contains(HasSubstr("the most that is chosen"))));
  EXPECT_THAT(texts(filled), Contains(HasSubstr("a step takes 1.00 s here, an epoch 5 s")));
}

TEST(Advice, NamesTheBufferThatThereWillBe) {
  const auto c = config_of(advise({.median_side = 32}), 1800);
  const auto a = fit_budget(c, 1800, {3, 32, 32}, 0.5, 1800);
  const auto trained =
      run::resolve(
          {{"", advise({.median_side = 32}).values}, {"", advise_batch(1800).values}, {"", a.values}})
          .method.ebclr;
  const auto kept = methods::buffer_size_of(trained.buffer.size, trained.chains, c.train.batch_size);
  EXPECT_LT(kept, trained.buffer.size) << "the key is for a chain per image";
  EXPECT_THAT(texts(a), ::testing::Contains(
                            ::testing::StartsWith(std::to_string(kept) + " chains in the replay buffer")));
  const auto none =
      fit_budget(asked({{"method.lambda", "0"}, {"train.batch_size", "64"}}), 1800, {3, 32, 32}, 0.5, 1800);
  EXPECT_THAT(texts(none), ::testing::Not(::testing::Contains(::testing::HasSubstr("replay buffer"))));
  EXPECT_EQ(value_of(none, "buffer.size"), "");
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
  EXPECT_THAT(reasons_left(fitted, {user, {"--set", {{"buffer.size", "77"}}}}),
              ::testing::ElementsAre("the learning rate warms up over a fifth of the run"));
}

TEST(Advice, FillsTheBudgetAndKeepsTheBufferUseful) {
  const auto config = config_of(advise({.median_side = 640}), 1800);
  const auto a = fit_budget(config, 1800, {3, 128, 128}, 0.5, 1800);
  const int64_t steps = 1800 / config.train.batch_size, epochs = std::stoll(value_of(a, "train.epochs"));
  EXPECT_LE(static_cast<double>(epochs * steps) * 0.5, 1800);
  EXPECT_GT(static_cast<double>((epochs + 1) * steps) * 0.5, 1800);
  const auto kept = [](const Advice& advice, const run::Config& c) {
    return methods::buffer_size_of(std::stoll(value_of(advice, "buffer.size")), c.method.ebclr.chains,
                                   c.train.batch_size);
  };
  const int64_t moved = methods::chains_of(config.method.ebclr.chains, config.train.batch_size);
  EXPECT_LE(kept(a, config) * 3 * 128 * 128 * 4, 128'000'000);
  EXPECT_GE(epochs * steps * moved / kept(a, config), 20) << "visits of a chain";
  // 259 images at 64 pixels once carried 513 MB, and 4 steps an epoch left no line in the log.
  const auto few = config_of(advise({.median_side = 640, .image_size = 64}), 233);
  const auto small = fit_budget(few, 233, {3, 64, 64}, 0.2, 600);
  EXPECT_LE(kept(small, few) * 3 * 64 * 64 * 4, 128'000'000);
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
