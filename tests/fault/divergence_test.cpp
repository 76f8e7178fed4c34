// A hundred trainings that go wrong on purpose: each recovers or ends with advice, none runs for ever, and
// none loses its last good state.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/rng.h"
#include "data/catalog.h"
#include "temp_dir.h"
#include "train/guard.h"
#include "train/trainer.h"

namespace ebclr::train {
namespace {

struct Counter : Observer {
  int64_t steps = 0, rollbacks = 0;
  void on_step(const StepReport& r) override {
    ++steps;
    rollbacks = std::max(rollbacks, r.position.rollbacks);
  }
};

run::Config config_of(const std::string& method, const std::string& lr) {
  return run::resolve({{"test",
                        {{"method.name", method},
                         {"data.source", "shapes"},
                         {"encoder.width", "8"},
                         {"head.out", "8"},
                         {"head.hidden", "8"},
                         {"buffer.size", "16"},
                         {"sampler.steps", "1"},
                         {"train.batch_size", "8"},
                         {"train.epochs", "5"},
                         {"optimizer.lr", lr},
                         {"guard.recover", "6"},
                         {"checkpoint.keep_last", "1"},
                         {"log.every", "1"},
                         {"log.samples_every", "0"}}}});
}

enum Kind { kNanGradient, kNanWeights, kHugeWeights, kNanChains, kLearningRate, kSlowDrift, kKinds };
constexpr const char* kNames[kKinds] = {"NaN in a gradient", "NaN in the weights", "huge weights",
                                        "NaN in the chains", "learning rate",      "slow drift"};

struct Case {
  Kind kind;
  int64_t first, times;  // strikes before so many steps, from the first on
  double factor;
};

// Makes the next step go wrong.
void strike(Trainer& trainer, const Case& c, int64_t step) {
  torch::NoGradGuard no_grad;
  auto parameters = trainer.method().encoder().parameters();
  auto& some = parameters[static_cast<size_t>(step) % parameters.size()];
  switch (c.kind) {
    case kNanGradient:
      some.register_hook([armed = std::make_shared<bool>(true)](torch::Tensor gradient) {
        return std::exchange(*armed, false) ? torch::full_like(gradient, NAN) : gradient;
      });
      break;
    case kNanWeights:
      some.fill_(NAN);
      break;
    case kHugeWeights:
    case kSlowDrift:
      for (auto& p : parameters) p.mul_(c.factor);
      break;
    case kNanChains:
      if (auto* buffer = trainer.method().buffer()) buffer->chains().fill_(NAN);
      break;
    default:
      break;
  }
}

TEST(Divergence, AHundredFaultsRecoverOrEndWithAdvice) {
  const auto images =
      std::make_shared<const data::ImageSet>(data::load({.source = "shapes", .limit = 24}).train);
  const std::atomic<bool> go_on{false};
  core::Rng rng(16, core::Stream::kEval);
  int recovered = 0, gave_up = 0, unharmed = 0, resumed = 0;
  for (int i = 0; i < 100; ++i) {
    const auto kind = static_cast<Kind>(i % kKinds);
    Case c{.kind = kind, .first = static_cast<int64_t>(rng.below(13)), .times = 1, .factor = 1};
    if (rng.bernoulli(0.3)) c.times = 1 + static_cast<int64_t>(rng.below(6));
    if (kind == kHugeWeights) c.factor = std::pow(10.0, 2 + rng.uniform64() * 20);
    if (kind == kSlowDrift)
      c.factor = 1.5 + 3 * rng.uniform64(), c.times = 4 + static_cast<int64_t>(rng.below(8));
    const bool simclr = kind != kNanChains && rng.bernoulli(0.25);
    const std::string lr = kind == kLearningRate ? std::to_string(std::pow(10.0, rng.uniform64() * 12))
                           : simclr              ? "0.001"
                                                 : "1e-4";
    const auto config = config_of(simclr ? "simclr" : "ebclr", lr);
    SCOPED_TRACE(::testing::Message() << "case " << i << ": " << kNames[kind] << " from step " << c.first
                                      << ", " << c.times << " times, factor " << c.factor << ", lr " << lr);
    testing::TempDir dir;
    Counter counter;
    bool finished = false;
    {
      Trainer trainer({.folder = {dir / "run"}, .config = config}, images, counter);
      int64_t strikes = 0;
      trainer.set_before_step([&](int64_t step) {
        if (step >= c.first && strikes < c.times) ++strikes, strike(trainer, c, step);
      });
      try {
        finished = trainer.run(go_on).finished;
      } catch (const core::Error& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("gave up"), std::string::npos) << text;
        EXPECT_NE(text.find("lower optimizer.lr"), std::string::npos) << text;
        ++gave_up;
      }
      if (finished) {
        for (const auto& p : trainer.method().encoder().parameters())
          ASSERT_TRUE(torch::isfinite(p).all().item<bool>());
        counter.rollbacks > 0 ? ++recovered : ++unharmed;
      }
    }
    // 15 steps, and at most 3 roll-backs for each stretch of 6 steps, none of which loses more than 15.
    EXPECT_LE(counter.steps, 15 + 15 * 3 * 4) << "it must not go on for ever";
    // What is on disk can be read and is sound, chains included.
    const auto files = run::list_checkpoints(run::RunFolder{dir / "run"}.checkpoints());
    int64_t furthest = -1;
    for (const auto& file : files) {
      const bool whole = simclr || !file.buffer.empty();
      EXPECT_EQ(unsound(run::read_checkpoint(file, whole)), std::nullopt) << file.path;
      if (whole) furthest = std::max(furthest, file.step);
    }
    // An epoch has 3 steps and ends in a checkpoint, which 3 more make good: what was good before the first
    // strike is still there, or something further. A learning rate strikes from the beginning.
    const int64_t good = kind == kLearningRate ? 0 : std::max<int64_t>(0, c.first / 3 * 3 - 3);
    EXPECT_GE(furthest, good);
    // And it is good: without strikes the run goes on to its end. Drift may have reached further back.
    if (finished || kind == kLearningRate || kind == kSlowDrift) continue;
    auto patient = config;
    patient.guard.tries = 2 * config.guard.tries;
    Trainer again({.folder = {dir / "run"}, .config = patient, .resume = true}, images, counter);
    EXPECT_TRUE(again.run(go_on).finished);
    ++resumed;
  }
  std::printf("  100 faults: %d recovered, %d ended with advice, %d did no harm; %d resumed to their end\n",
              recovered, gave_up, unharmed, resumed);
  EXPECT_GT(resumed, 0);
  EXPECT_EQ(recovered + gave_up + unharmed, 100);
  EXPECT_GT(recovered, 50);
  EXPECT_GT(gave_up, 0);
}

// Drift that a checkpoint has already taken in: the guard goes back beyond it.
TEST(Divergence, APoisonedCheckpointIsNotGoneBackTo) {
  const auto images =
      std::make_shared<const data::ImageSet>(data::load({.source = "shapes", .limit = 24}).train);
  const std::atomic<bool> go_on{false};
  testing::TempDir dir;
  Counter counter;
  Trainer trainer({.folder = {dir / "run"}, .config = config_of("ebclr", "1e-4")}, images, counter);
  bool poisoned = false, failed = false;
  trainer.set_before_step([&](int64_t step) {
    torch::NoGradGuard no_grad;
    auto parameters = trainer.method().encoder().parameters();
    // Finite in the checkpoint of step 6, fatal one step later.
    if (step == 5 && !poisoned) poisoned = true, parameters[0].mul_(2);
    if (step == 7 && !failed) failed = true, parameters[0].fill_(NAN);
  });
  EXPECT_TRUE(trainer.run(go_on).finished);
  EXPECT_EQ(counter.rollbacks, 1);
  EXPECT_EQ(counter.steps, 7 + 15 - 3) << "back to step 3, not to 6, which had one healthy step beyond it";
}

TEST(Guard, CheckpointsBecomeGoodAfterHealthySteps) {
  auto config = config_of("ebclr", "1e-4");
  config.guard.healthy = 10;
  Guard guard(config, {}, 100);
  guard.saved({0, 0});
  EXPECT_EQ(guard.good(), (run::CheckpointId{0, 0}));
  guard.saved({0, 6});
  for (int64_t step : {12, 18, 24}) {
    guard.kept({.step = step});
    guard.saved({0, step});
    const auto protect = guard.protect();
    ASSERT_EQ(protect.size(), 2u) << "the good one and the next in line";
    EXPECT_LE(protect[0].step + 10, step);
  }
  EXPECT_EQ(guard.good(), (run::CheckpointId{0, 12}));
  guard.kept({.step = 28});
  EXPECT_EQ(guard.good(), (run::CheckpointId{0, 18}));
  guard.rolled_back({.step = 28}, {1, 18});
  EXPECT_EQ(guard.good(), (run::CheckpointId{1, 18}));
  EXPECT_EQ(guard.tries(), 1);
  EXPECT_DOUBLE_EQ(guard.lr_scale(), 0.5);
}

// Checkpoints every two steps, of which the writer keeps one: those in between are gone before they can
// become good.
TEST(Guard, TheGoodOneIsAlwaysAmongThoseKept) {
  auto config = config_of("ebclr", "1e-4");
  config.guard.healthy = 10;
  Guard guard(config, {}, 100);
  std::vector<run::CheckpointId> disk;
  int64_t best = -1;
  for (int64_t step = 0; step <= 100; step += 2) {
    guard.kept({.step = step});
    guard.saved({0, step});
    disk.push_back({0, step});
    const auto protect = guard.protect();
    std::erase_if(disk, [&](const auto& id) {
      return id.step != step && std::find(protect.begin(), protect.end(), id) == protect.end();
    });
    EXPECT_LE(disk.size(), 3u);
    EXPECT_NE(std::find(disk.begin(), disk.end(), *guard.good()), disk.end()) << "at step " << step;
    if (step >= 24) {
      EXPECT_GE(guard.good()->step, step - 24) << "it keeps up";
    }
    EXPECT_GE(guard.good()->step, best);
    best = guard.good()->step;
  }
}

TEST(Guard, TriesAreCountedAnewBeyondTheLastFault) {
  auto config = config_of("ebclr", "1e-4");
  config.guard.recover = 20;
  Guard guard(config, {}, 10);
  guard.rolled_back({.step = 30}, {1, 10});
  guard.rolled_back({.step = 25}, {2, 10});
  guard.kept({.step = 50});
  EXPECT_EQ(guard.tries(), 2) << "20 steps after step 31 are not over";
  guard.kept({.step = 51});
  EXPECT_EQ(guard.tries(), 0);
  Guard other(config, {}, 10);
  guard.rolled_back({.step = 60}, {3, 50});
  other.load_state({{"lr_scale", 0.125}, {"guard", guard.state()}}, {.step = 55, .rollbacks = 3});
  EXPECT_EQ(other.tries(), 1);
  EXPECT_DOUBLE_EQ(other.lr_scale(), 0.125);
}

TEST(Guard, ACollapseWithinTheFirstEpochIsAFault) {
  const auto seen = [](double spread, int64_t step) {
    train::Signs s{.position = {.step = step}, .loss = 4.8, .projection_dim = 128};
    s.spread = spread;
    return s;
  };
  train::Guard guard(run::resolve({}), {}, 100);
  EXPECT_FALSE(guard.fault(seen(0.03, 0))) << "first weights are what they are";
  EXPECT_FALSE(guard.warning(seen(0.03, 1)));
  EXPECT_FALSE(guard.fault(seen(0.0056, 10))) << "a dip from which a run came back";
  const auto fault = guard.fault(seen(0.0002, 10));
  ASSERT_TRUE(fault) << "one that did not";
  EXPECT_NE(fault->find("projections have collapsed"), std::string::npos);
  // A network that begins with next to no spread has not fallen.
  train::Guard faded(run::resolve({}), {}, 100);
  EXPECT_FALSE(faded.warning(seen(0.0002, 1)));
  EXPECT_FALSE(faded.fault(seen(0.0002, 10)));
}

TEST(Guard, SeesWhatIsNotFinite) {
  run::Snapshot s;
  s.tensors.tensors["w"] = torch::zeros({5000});
  s.buffer.tensors["chains"] = torch::zeros({7}, torch::kFloat16);
  s.buffer.tensors["counts"] = torch::zeros({7}, torch::kInt64);
  EXPECT_EQ(unsound(s), std::nullopt);
  s.tensors.tensors["w"][4999] = -INFINITY;
  EXPECT_EQ(unsound(s), "w is not finite");
  s.tensors.tensors["w"][4999] = 3.4e38;
  s.buffer.tensors["chains"][6] = NAN;
  EXPECT_EQ(unsound(s), "chains is not finite");
  s.buffer.tensors["chains"][6] = 65504;
  EXPECT_EQ(unsound(s), std::nullopt);
}

}  // namespace
}  // namespace ebclr::train
