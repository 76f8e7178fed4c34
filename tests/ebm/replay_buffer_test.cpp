#include "ebm/replay_buffer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "expect_error.h"

namespace ebclr::ebm {
namespace {

// Proposals are marked by a constant value so that fresh chains can be told apart.
ProposalSource constant(float value) {
  return [value](int64_t n, core::Rng&) { return torch::full({n, 1, 2, 2}, value); };
}

ReplayBuffer make(BufferOptions options, float value = 0) {
  core::Rng rng(1, core::Stream::kChains);
  return ReplayBuffer(options, {1, 2, 2}, constant(value), rng);
}

TEST(ReplayBuffer, StartsFullOfProposals) {
  const auto buffer = make({.size = 3000}, 0.5);
  EXPECT_EQ(buffer.chains().sizes(), (std::vector<int64_t>{3000, 1, 2, 2}));
  EXPECT_TRUE(buffer.chains().eq(0.5).all().item<bool>());
  EXPECT_EQ(buffer.counts().sum().item<int64_t>(), 0);
  EXPECT_EQ(buffer.bytes(), 3000 * (4 * 4 + 8));
  EXPECT_EQ(make({.size = 3000, .half = true}).bytes(), 3000 * (4 * 2 + 8));
}

TEST(ReplayBuffer, NeverPicksASlotTwiceAndReachesAll) {
  const auto buffer = make({.size = 50, .rho = 0});
  core::Rng rng(2, core::Stream::kChains);
  std::set<int64_t> reached;
  for (int round = 0; round < 100; ++round) {
    const auto picked = buffer.pick(20, constant(1), rng);
    std::set<int64_t> slots(picked.slots.data_ptr<int64_t>(), picked.slots.data_ptr<int64_t>() + 20);
    EXPECT_EQ(slots.size(), 20u);
    EXPECT_GE(*slots.begin(), 0);
    EXPECT_LT(*slots.rbegin(), 50);
    reached.insert(slots.begin(), slots.end());
  }
  EXPECT_EQ(reached.size(), 50u);
  // A batch as large as the buffer is a permutation of it.
  const auto all = std::get<0>(torch::sort(buffer.pick(50, constant(1), rng).slots));
  EXPECT_TRUE(torch::equal(all, torch::arange(50)));
}

TEST(ReplayBuffer, ReinitialisesWithProbabilityRho) {
  const auto buffer = make({.size = 1000, .rho = 0.3});
  core::Rng rng(3, core::Stream::kChains);
  double fresh = 0, total = 0, squares = 0;
  for (int round = 0; round < 200; ++round) {
    const auto picked = buffer.pick(100, constant(9), rng);
    const double k = picked.fresh.sum().item<double>();
    EXPECT_TRUE(torch::equal(picked.chains.eq(9).flatten(1).all(1), picked.fresh));
    fresh += k;
    squares += k * k;
    total += 100;
  }
  EXPECT_NEAR(fresh / total, 0.3, 0.012);
  // Bernoulli per chain: the number per batch is binomial, not fixed.
  const double mean = fresh / 200;
  EXPECT_NEAR(squares / 200 - mean * mean, 100 * 0.3 * 0.7, 7);
  EXPECT_FALSE(make({.size = 100, .rho = 0}).pick(50, constant(9), rng).fresh.any().item<bool>());
  EXPECT_TRUE(make({.size = 100, .rho = 1}).pick(50, constant(9), rng).fresh.all().item<bool>());
}

TEST(ReplayBuffer, CountsVisitsAndRestartsThemForFreshChains) {
  auto buffer = make({.size = 40, .rho = 0.25});
  core::Rng rng(4, core::Stream::kChains);
  std::vector<int64_t> want(40, 0);
  for (int round = 0; round < 60; ++round) {
    const auto picked = buffer.pick(16, constant(9), rng);
    for (int64_t i = 0; i < 16; ++i) {
      auto& w = want[static_cast<size_t>(picked.slots[i].item<int64_t>())];
      if (picked.fresh[i].item<bool>()) w = 0;
      EXPECT_EQ(picked.counts[i].item<int64_t>(), w);
      ++w;
    }
    buffer.put(picked, picked.chains);
  }
  EXPECT_TRUE(torch::equal(buffer.counts(), torch::tensor(want, torch::kInt64)));
}

TEST(ReplayBuffer, PutTouchesOnlyThePickedSlots) {
  for (bool half : {false, true}) {
    auto buffer = make({.size = 30, .rho = 0, .half = half}, 0.25);
    core::Rng rng(5, core::Stream::kChains);
    const auto picked = buffer.pick(10, constant(9), rng);
    buffer.put(picked, torch::full({10, 1, 2, 2}, -0.75));
    const auto moved = buffer.chains().to(torch::kFloat32).flatten(1).mean(1);
    EXPECT_EQ(moved.eq(-0.75).sum().item<int64_t>(), 10);
    EXPECT_EQ(moved.eq(0.25).sum().item<int64_t>(), 20);
    EXPECT_TRUE(moved.index_select(0, picked.slots).eq(-0.75).all().item<bool>());
  }
}

TEST(ReplayBuffer, RefusesNonsense) {
  using core::ExitCode;
  testing::expect_error(
      ExitCode::kUsage, [] { make({.size = 0}); }, "buffer.size 0");
  testing::expect_error(
      ExitCode::kUsage, [] { make({.rho = 1.5}); }, "buffer.rho 1.5");
  testing::expect_error(
      ExitCode::kUsage,
      [] {
        core::Rng rng;
        make({.size = 10}).pick(11, constant(0), rng);
      },
      "smaller than the batch of 11");
}

}  // namespace
}  // namespace ebclr::ebm
