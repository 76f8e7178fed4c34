#include "eval/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "eval/curve.h"
#include "helpers.h"
#include "temp_dir.h"

namespace ebclr::eval {
namespace {

using ::testing::HasSubstr;

JudgeOptions quick_judging() {
  JudgeOptions options;
  options.probe.epochs = 4;
  options.probe.batch_size = 32;
  options.neighbours.k = 5;
  return options;
}

data::TrainTest shapes() {
  return data::load({.source = "shapes", .limit = 60, .limit_test = 30});
}

/// A run folder with one checkpoint, as training leaves it.
run::Run make_run(const std::filesystem::path& folder, bool checkpoint) {
  std::filesystem::create_directories(folder / "checkpoints");
  run::Layer layer{"test", {{"data.source", "shapes"}, {"encoder.width", "4"}}};
  core::write_atomically(folder / "config.yaml", run::to_yaml(run::resolve({layer})), "test");
  auto run = run::Run::open(folder);
  if (checkpoint) {
    auto model = run.untrained({3, 32, 32});
    run::Snapshot snapshot;
    snapshot.position = {.step = 10, .epoch = 2, .seconds = 5, .forward_units = 290};
    for (auto& [name, t] : nn::state_of(*model.encoder, "method/encoder."))
      snapshot.tensors.tensors[name] = t.detach();
    for (auto& [name, t] : nn::state_of(*model.head, "method/head."))
      snapshot.tensors.tensors[name] = t.detach();
    run::write_checkpoint(folder / "checkpoints", snapshot);
  }
  return run;
}

TEST(Judge, RowsOfARunAndItsBaselines) {
  testing::TempDir dir;
  const auto run = make_run(dir / "run", true);
  auto model = run.load("last");
  const Bench bench = make_bench(shapes(), model.encoder->options().channels, model.image_shape, false);
  const Subject trained = encoder_subject("trained encoder", model, bench);
  EXPECT_EQ(trained.epoch, 2);
  EXPECT_EQ(trained.train.features.size(0), 60);
  const auto rows = judge(trained, bench.classes, quick_judging());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].judge, "knn");
  EXPECT_EQ(rows[1].judge, "linear");
  for (const Row& row : rows) {
    EXPECT_EQ(row.score.total, 30);
    EXPECT_LE(row.score.interval.low, row.score.accuracy);
    EXPECT_GE(row.score.interval.high, row.score.accuracy);
    const auto j = to_json(row, bench.class_names);
    EXPECT_EQ(j["per_class"].size(), static_cast<size_t>(bench.classes));
    EXPECT_EQ(j["confusion"].size(), static_cast<size_t>(bench.classes));
    EXPECT_EQ(j["epoch"], 2);
  }
  EXPECT_EQ(to_json(rows[1], {})["learning_rate_chosen_on"], "held-out part of train");
  const Subject pixels = pixel_subject(bench);
  EXPECT_EQ(pixels.train.features.size(1), 3 * 32 * 32);
  EXPECT_EQ(judge(pixels, bench.classes, quick_judging())[0].subject, "raw pixels");
}

TEST(Judge, PaperProtocolIsLabelled) {
  const Bench bench = make_bench(shapes(), 3, {}, false);
  JudgeOptions options = quick_judging();
  options.knn = false;
  options.probe.protocol = ProbeProtocol::kPaper;
  options.labels_per_class = {1, 2};
  options.draws = 2;
  const auto row = judge(pixel_subject(bench), bench.classes, options).at(0);
  EXPECT_THAT(row.label, HasSubstr("chosen on test"));
  const auto j = to_json(row, bench.class_names);
  EXPECT_EQ(j["protocol"], "paper");
  EXPECT_EQ(j["learning_rate_chosen_on"], "test");
  EXPECT_EQ(j["few_labels"].size(), 2u);
  EXPECT_EQ(j["few_labels"][1]["draws"].size(), 2u);
}

TEST(Judge, RefusesWhatCannotBeJudged) {
  testing::TempDir dir;
  const auto run = make_run(dir / "run", false);
  EXPECT_THAT(error_of([&] { run.load("last"); }), HasSubstr("no checkpoint"));
  auto sets = shapes();
  auto bare = sets;
  bare.train.labels = torch::full_like(sets.train.labels, data::kNoLabel);
  EXPECT_THAT(error_of([&] { make_bench(bare, 3, {}, false); }),
              HasSubstr("60 of 60 train images of 'shapes' have no label"));
  bare = sets;
  bare.test = {};
  EXPECT_THAT(error_of([&] { make_bench(bare, 3, {}, false); }), HasSubstr("no test images"));
  auto one = sets;
  one.train.labels = torch::zeros_like(sets.train.labels);
  one.test.labels = torch::zeros_like(sets.test.labels);
  const Bench bench = make_bench(one, 3, {}, false);
  EXPECT_THAT(error_of([&] { judge(pixel_subject(bench), bench.classes, quick_judging()); }),
              HasSubstr("same label (0)"));
  JudgeOptions many = quick_judging();
  many.neighbours.k = 100;
  const Bench good = make_bench(sets, 3, {}, false);
  EXPECT_THAT(error_of([&] { judge(pixel_subject(good), good.classes, many); }),
              HasSubstr("only 60 train images"));
}

TEST(CurveFile, ReadsBackAndComparesLikeWithLike) {
  testing::TempDir dir;
  const Curve curve{"ebclr", "shapes", "knn", "paper", 60, 30, {{0, 0, 0, 0.1}, {5, 1.5, 290, 0.7}}};
  const auto file = curve_file(dir / "run", "knn", "paper");
  write_curve(file, curve);
  Curve read = read_curve(file);
  EXPECT_EQ(read.method, "ebclr");
  ASSERT_EQ(read.points.size(), 2u);
  EXPECT_DOUBLE_EQ(read.points[1].seconds, 1.5);
  check_comparable(curve, read);
  read.data = "cifar10";
  EXPECT_THAT(error_of([&] { check_comparable(curve, read); }),
              HasSubstr("different data (shapes and cifar10)"));
  core::write_atomically(file, "{\"method\": 3}", "test");
  EXPECT_THAT(error_of([&] { read_curve(file); }), HasSubstr("is not a curve"));
  EXPECT_FALSE(error_of([&] { read_curve(dir / "absent.json"); }).empty());
}

}  // namespace
}  // namespace ebclr::eval
