#include "eval/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/files.h"
#include "eval/compare.h"
#include "helpers.h"
#include "run/run.h"
#include "temp_dir.h"

namespace ebclr::eval {
namespace {

using ::testing::HasSubstr;

CurvePoint point(double epoch, double seconds, double units, double accuracy, int64_t total = 10000) {
  return {epoch, seconds, units, accuracy, std::llround(accuracy * static_cast<double>(total)), total};
}

const std::vector<CurvePoint> kReference = {point(0, 0, 0, 0.4), point(10, 500, 2900, 0.70),
                                            point(20, 1000, 5800, 0.80), point(30, 1500, 8700, 0.79),
                                            point(100, 5000, 29000, 0.90)};

TEST(Efficiency, LiesBetweenTheCheckpointsAroundTheTarget) {
  const Efficiency e =
      relative_efficiency(kReference, {point(50, 400, 3000, 0.60), point(100, 800, 6000, 0.75)});
  EXPECT_DOUBLE_EQ(e.target, 0.75);
  EXPECT_EQ(e.void_because, "");
  ASSERT_TRUE(e.reached);
  EXPECT_DOUBLE_EQ(e.reached->epoch, 20);
  // Between epoch 10 and epoch 20 of the reference: no checkpoint says where.
  EXPECT_EQ(*e.epochs, (Bracket{0.1, 0.2}));
  EXPECT_EQ(*e.seconds, (Bracket{500.0 / 800, 1000.0 / 800}));  // fewer epochs, yet more seconds
  EXPECT_EQ(*e.forward_units, (Bracket{2900.0 / 6000, 5800.0 / 6000}));
  EXPECT_EQ(to_text(*e.epochs), "(0.1, 0.2]");
}

TEST(Efficiency, TheFirstCheckpointMayBeAnywhereBeforeIt) {
  const Efficiency e = relative_efficiency(kReference, {point(0, 0, 0, 0.1), point(100, 1, 1, 0.65)});
  EXPECT_EQ(*e.epochs, (Bracket{0, 0.1}));
}

TEST(Efficiency, ALuckyCheckpointHasNotGotThere) {
  const auto reached = [](double later) {
    auto a = std::vector<CurvePoint>{point(0, 0, 0, 0.4), point(10, 1, 1, 0.755), point(20, 2, 2, later),
                                     point(100, 10, 10, 0.90)};
    auto b = std::vector<CurvePoint>{point(100, 10, 10, 0.75)};
    for (auto* curve : {&a, &b})
      for (auto& p : *curve) p.total = 1000;
    return relative_efficiency(a, b).reached->epoch;
  };
  EXPECT_EQ(reached(0.65), 100) << "the next one is clearly below the target";
  EXPECT_EQ(reached(0.74), 10) << "within what 1,000 test images can tell";
}

TEST(Efficiency, FinalNotBestAccuracyIsTheTarget) {
  const Efficiency e = relative_efficiency(kReference, {point(100, 1, 1, 0.65), point(60, 1, 1, 0.85)});
  EXPECT_DOUBLE_EQ(e.target, 0.65);
  EXPECT_DOUBLE_EQ(e.epochs->high, 0.1);
}

TEST(Efficiency, ATargetThatWasNeverReachedHasNoUpperEnd) {
  const Efficiency e = relative_efficiency(kReference, {point(100, 800, 6000, 0.95)});
  EXPECT_FALSE(e.reached);
  EXPECT_DOUBLE_EQ(e.epochs->low, 1);
  EXPECT_TRUE(std::isinf(e.epochs->high));
  EXPECT_EQ(to_text(*e.epochs), "> 1");
}

TEST(Efficiency, AReferenceThatBeginsAboveTheTargetProvesNothing) {
  // Fashion-MNIST: EBCLR's first weights had 71.7 %, SimCLR ended at 69.2 %; the old figure was 0.1.
  const std::vector<CurvePoint> reference = {point(0, 0, 0, 0.717), point(1, 1, 1, 0.78),
                                             point(10, 10, 10, 0.85)};
  const auto e = relative_efficiency(reference, {point(0, 0, 0, 0.55), point(10, 1, 1, 0.692)});
  EXPECT_THAT(e.void_because, HasSubstr("71.7 % before training"));
  EXPECT_FALSE(e.epochs);
  EXPECT_FALSE(e.reached);
  // Above it, but by less than chance among 1,000 test images explains.
  const auto near = relative_efficiency({point(0, 0, 0, 0.70, 1000), point(5, 5, 5, 0.75, 1000)},
                                        {point(0, 0, 0, 0.55, 1000), point(10, 1, 1, 0.72, 1000)});
  EXPECT_FALSE(near.epochs);
  const auto clear = relative_efficiency({point(0, 0, 0, 0.70, 100000), point(5, 5, 5, 0.75, 100000)},
                                         {point(0, 0, 0, 0.55, 100000), point(10, 1, 1, 0.72, 100000)});
  EXPECT_TRUE(clear.epochs);
}

TEST(Efficiency, ARivalThatLearntNothingProvesNothing) {
  const auto e = relative_efficiency(kReference, {point(0, 0, 0, 0.60), point(10, 1, 1, 0.60)});
  EXPECT_THAT(e.void_because, HasSubstr("learnt nothing"));
  EXPECT_FALSE(e.epochs);
}

TEST(Efficiency, AgainstItselfAndWithMissingClocks) {
  EXPECT_DOUBLE_EQ(relative_efficiency(kReference, kReference).epochs->high, 1);
  const Efficiency e = relative_efficiency(kReference, {point(100, 0, 0, 0.75)});
  EXPECT_TRUE(e.epochs);
  EXPECT_FALSE(e.seconds);
  EXPECT_THAT(error_of([] { relative_efficiency({}, kReference); }), HasSubstr("without points"));
  EXPECT_THAT(error_of([] { relative_efficiency({point(0, 0, 0, 0.5)}, kReference); }),
              HasSubstr("without points of training"));
}

TEST(Compare, ReadsCurvesAndNamesWhatAReaderMustKnow) {
  testing::TempDir dir;
  const auto curve = [&](const char* name, const char* method, std::vector<CurvePoint> points) {
    write_curve(curve_file(dir / name, "knn", "paper"), {.method = method,
                                                         .data = "shapes",
                                                         .judge = "knn",
                                                         .protocol = "paper",
                                                         .train_images = 60,
                                                         .test_images = 10000,
                                                         .points = std::move(points),
                                                         .schedule = "cosine"});
  };
  curve("simclr", "simclr", {point(0, 0, 0, 0.3), point(10, 100, 600, 0.75)});
  curve("ebclr", "ebclr", kReference);
  const auto c = compare({.runs = {dir / "simclr", dir / "ebclr"}});
  EXPECT_EQ(c.reference, 1u);
  EXPECT_EQ(*c.results[0].epochs, (Bracket{1, 2}));
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_THAT(c.notes[0], HasSubstr("cosine"));
  // The untrained point is not a checkpoint that reaches anything: it was, and gave 0.000 in every currency.
  EXPECT_GT(c.results[1].epochs->high, 0);
  // A run that was trained on since: what the curve ends with is not the run's end.
  core::write_atomically(dir / "simclr" / "config.yaml", run::to_yaml(run::resolve({})), "test");
  run::Snapshot newest;
  newest.position = {.step = 100, .epoch = 10};
  run::write_checkpoint(dir / "simclr" / "checkpoints", newest);
  EXPECT_EQ(compare({.runs = {dir / "simclr", dir / "ebclr"}}).notes.size(), 1u);
  newest.position = {.step = 155, .epoch = 15, .batch = 5};
  run::write_checkpoint(dir / "simclr" / "checkpoints", newest);
  const auto older = compare({.runs = {dir / "simclr", dir / "ebclr"}}).notes;
  ASSERT_EQ(older.size(), 2u);
  EXPECT_THAT(older[0], HasSubstr("ends at epoch 10, the run at 15.5"));
  EXPECT_THAT(error_of([&] { compare({.runs = {dir / "simclr"}}); }), HasSubstr("two or more"));
  EXPECT_THAT(error_of([&] {
                compare({.runs = {dir / "simclr", dir / "absent"}});
              }),
              HasSubstr("no such run folder"));
  EXPECT_THAT(error_of([&] {
                compare({.runs = {dir / "simclr", dir / "ebclr"}, .judge = "linear"});
              }),
              HasSubstr("ebclr eval curve"));
  EXPECT_THAT(error_of([&] {
                compare({.runs = {dir / "simclr", dir / "ebclr"}, .reference = dir / "else"});
              }),
              HasSubstr("not among the runs"));
}

}  // namespace
}  // namespace ebclr::eval
