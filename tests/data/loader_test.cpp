#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "data/shapes.h"

namespace ebclr::data {
namespace {

std::shared_ptr<const ImageSet> tiny(int64_t count = 50) {
  return std::make_shared<ImageSet>(make_shapes({.size = 16, .count = count, .seed = 1}, "train"));
}

std::vector<Batch> take(Loader& loader, int n) {
  std::vector<Batch> out;
  for (int i = 0; i < n; ++i) out.push_back(loader.next());
  return out;
}

std::vector<int64_t> values(const torch::Tensor& t) {
  return {t.data_ptr<int64_t>(), t.data_ptr<int64_t>() + t.numel()};
}

TEST(Loader, DoesNotDependOnThreadsOrPrefetch) {
  const auto set = tiny();
  Loader one(set, {}, {.batch_size = 8, .seed = 4, .threads = 1, .ahead = 1});
  Loader many(set, {}, {.batch_size = 8, .seed = 4, .threads = 4, .ahead = 7});
  for (int i = 0; i < 15; ++i) {
    const auto a = one.next(), b = many.next();
    EXPECT_EQ(a.epoch, i / 6);
    EXPECT_EQ(a.number, i % 6);
    EXPECT_TRUE(torch::equal(a.indices, b.indices));
    EXPECT_TRUE(torch::equal(a.view1, b.view1));
    EXPECT_TRUE(torch::equal(a.view2, b.view2));
    EXPECT_FALSE(torch::equal(a.view1, a.view2));
  }
}

TEST(Loader, CanStartAnywhere) {
  const auto set = tiny();
  Loader whole(set, {}, {.batch_size = 8, .seed = 4});
  const auto all = take(whole, 14);
  Loader later(set, {}, {.batch_size = 8, .seed = 4, .threads = 2}, 1, 3);
  for (int i = 9; i < 14; ++i) {
    const auto b = later.next();
    EXPECT_EQ(b.epoch, all[i].epoch);
    EXPECT_EQ(b.number, all[i].number);
    EXPECT_TRUE(torch::equal(b.view1, all[i].view1));
    EXPECT_TRUE(torch::equal(b.view2, all[i].view2));
  }
}

TEST(Loader, ViewsOfAnImageDoNotDependOnTheBatchSize) {
  const auto set = tiny();
  Loader small(set, {}, {.batch_size = 5, .seed = 4}), large(set, {}, {.batch_size = 25, .seed = 4});
  const auto b = large.next();
  int64_t row = 0;
  for (const auto& s : take(small, 5)) {
    EXPECT_TRUE(torch::equal(s.indices, b.indices.slice(0, row, row + 5)));
    EXPECT_TRUE(torch::equal(s.view1, b.view1.slice(0, row, row + 5)));
    row += 5;
  }
}

TEST(Loader, AnEpochShowsEveryImageOnce) {
  const auto set = tiny(50);
  Loader loader(set, {}, {.batch_size = 8, .drop_last = false});
  EXPECT_EQ(loader.batches_per_epoch(), 7);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> seen;
    for (const auto& b : take(loader, 7)) {
      EXPECT_EQ(b.epoch, epoch);
      EXPECT_EQ(b.view1.size(0), b.number == 6 ? 2 : 8);
      for (auto i : values(b.indices)) seen.insert(i);
    }
    EXPECT_EQ(seen.size(), 50u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 50u);
  }
  EXPECT_FALSE(torch::equal(epoch_order(50, 0, 0), epoch_order(50, 0, 1)));
  EXPECT_FALSE(torch::equal(epoch_order(50, 0, 0), epoch_order(50, 1, 0)));
}

TEST(Loader, RanksShareEveryBatch) {
  const auto set = tiny(50);
  Loader alone(set, {}, {.batch_size = 12, .seed = 2, .drop_last = false});
  std::vector<std::unique_ptr<Loader>> ranks;
  for (int64_t r = 0; r < 3; ++r)
    ranks.push_back(std::make_unique<Loader>(
        set, ViewOptions{},
        LoaderOptions{.batch_size = 12, .seed = 2, .drop_last = false, .rank = r, .world = 3}));
  EXPECT_EQ(ranks[0]->batches_per_epoch(), 4);  // the last two images do not give every rank one
  for (int i = 0; i < 4; ++i) {
    const auto whole = alone.next();
    std::vector<torch::Tensor> indices, views;
    for (auto& r : ranks) {
      const auto b = r->next();
      EXPECT_EQ(b.indices.numel(), 4);
      indices.push_back(b.indices);
      views.push_back(b.view2);
    }
    EXPECT_TRUE(torch::equal(torch::cat(indices), whole.indices));
    EXPECT_TRUE(torch::equal(torch::cat(views), whole.view2));
  }
}

TEST(Loader, ShortLastBatchIsSharedOut) {
  const auto set = tiny(19);
  int64_t total = 0;
  for (int64_t r = 0; r < 3; ++r) {
    Loader loader(set, {}, {.batch_size = 12, .drop_last = false, .rank = r, .world = 3});
    EXPECT_EQ(loader.batches_per_epoch(), 2);
    int64_t all = 0;
    for (const auto& b : take(loader, 2)) total += b.indices.numel(), all += b.total;
    EXPECT_EQ(all, 19);
  }
  EXPECT_EQ(total, 19);
}

TEST(Loader, FailureInAWorkerReachesNextInItsTurn) {
  const auto set = tiny();
  Loader loader(set, {},
                {.batch_size = 8, .threads = 3, .ahead = 5, .on_batch = [](int64_t epoch, int64_t number) {
                   if (epoch == 0 && number == 2) throw std::runtime_error("broken on purpose");
                 }});
  EXPECT_NO_THROW(loader.next());
  EXPECT_NO_THROW(loader.next());
  for (int i = 0; i < 2; ++i) {
    try {
      loader.next();
      ADD_FAILURE() << "the third batch should have failed";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "broken on purpose");
    }
  }
}

TEST(Loader, StopsWhileBusy) {
  const auto set = tiny(200);
  for (int i = 0; i < 30; ++i) {
    Loader loader(set, {}, {.batch_size = 50, .threads = 4, .ahead = 8});
    if (i % 3 == 1) loader.next();
    if (i % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(Loader, RejectsWhatCannotWork) {
  const auto set = tiny(10);
  EXPECT_THROW(Loader(set, {}, {.batch_size = 11}), core::Error);
  EXPECT_THROW(Loader(set, {}, {.batch_size = 0}), core::Error);
  EXPECT_THROW(Loader(set, {}, {.batch_size = 2, .rank = 2, .world = 2}), core::Error);
  EXPECT_THROW(Loader(set, {}, {.batch_size = 2, .rank = 2, .world = 3}), core::Error);
  EXPECT_THROW(Loader(std::make_shared<ImageSet>(), {}, {.batch_size = 2}), core::Error);
  EXPECT_THROW(Loader(set, {.flip = 2}, {.batch_size = 2}), core::Error);
}

}  // namespace
}  // namespace ebclr::data
