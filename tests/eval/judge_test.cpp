#include "eval/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "eval/curve.h"
#include "eval/run_curve.h"
#include "eval/untrained.h"
#include "helpers.h"
#include "temp_dir.h"

namespace ebclr::eval {
namespace {

using ::testing::HasSubstr;

JudgeOptions quick_judging() {
  JudgeOptions options;
  options.probe.epochs = 4;
  options.probe.batch_size = 32;
  options.neighbours[0].k = 5;
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
  const EvalSets judged =
      make_eval_sets(shapes(), model.encoder->options().channels, model.image_shape, false);
  const Subject trained = encoder_subject("trained encoder", model, judged);
  EXPECT_EQ(trained.epoch, 2);
  EXPECT_EQ(trained.train.features.size(0), 60);
  const auto rows = judge(trained, judged.classes, quick_judging());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].judge, "knn");
  EXPECT_EQ(rows[1].judge, "linear");
  for (const Row& row : rows) {
    EXPECT_EQ(row.score.total, 30);
    EXPECT_LE(row.score.interval.low, row.score.accuracy);
    EXPECT_GE(row.score.interval.high, row.score.accuracy);
    const auto j = to_json(row, judged.class_names);
    EXPECT_EQ(j["per_class"].size(), static_cast<size_t>(judged.classes));
    EXPECT_EQ(j["confusion"].size(), static_cast<size_t>(judged.classes));
    EXPECT_EQ(j["epoch"], 2);
  }
  EXPECT_EQ(to_json(rows[1], {})["learning_rate_chosen_on"], "held-out part of train");
  const Subject pixels = pixel_subject(judged);
  EXPECT_EQ(pixels.train.features.size(1), 3 * 32 * 32);
  EXPECT_EQ(judge(pixels, judged.classes, quick_judging())[0].subject, "raw pixels");
}

TEST(Judge, PaperProtocolIsLabelled) {
  const EvalSets judged = make_eval_sets(shapes(), 3, {}, false);
  JudgeOptions options = quick_judging();
  options.neighbours.clear();
  options.probe.protocol = ProbeProtocol::kPaper;
  options.labels_per_class = {1, 2};
  options.draws = 2;
  const auto row = judge(pixel_subject(judged), judged.classes, options).at(0);
  EXPECT_THAT(row.label, HasSubstr("chosen on test"));
  const auto j = to_json(row, judged.class_names);
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
  EXPECT_THAT(error_of([&] { make_eval_sets(bare, 3, {}, false); }),
              HasSubstr("none of the 60 train images of 'shapes' has a label"));
  bare = sets;
  bare.test = {};
  EXPECT_THAT(error_of([&] { make_eval_sets(bare, 3, {}, false); }), HasSubstr("no test images"));
  auto one = sets;
  one.train.labels = torch::zeros_like(sets.train.labels);
  one.test.labels = torch::zeros_like(sets.test.labels);
  const EvalSets judged = make_eval_sets(one, 3, {}, false);
  EXPECT_THAT(error_of([&] { judge(pixel_subject(judged), judged.classes, quick_judging()); }),
              HasSubstr("same label (0)"));
  JudgeOptions many = quick_judging();
  many.neighbours[0].k = 100;
  const EvalSets good = make_eval_sets(sets, 3, {}, false);
  EXPECT_THAT(error_of([&] { judge(pixel_subject(good), good.classes, many); }),
              HasSubstr("only 60 train images"));
}

TEST(Judge, SeveralProtocolsOfNeighboursAreSeveralRows) {
  const EvalSets judged = make_eval_sets(shapes(), 3, {}, false);
  JudgeOptions options;
  options.linear = false;
  options.neighbours = {knn_protocol("paper"), knn_protocol("dino"), knn_protocol("moco")};
  options.lower_k = true;
  const auto rows = judge(pixel_subject(judged), judged.classes, options);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].protocol, "dino");
  EXPECT_EQ(rows[1].label, "K 20, cosine, T 0.07");
  EXPECT_EQ(rows[2].k, 60) << "200 neighbours among 60 images";
}

TEST(Untrained, BatchNormGetsTheStatisticsOfTrainImages) {
  testing::TempDir dir;
  std::filesystem::create_directories(dir / "run");
  run::Layer layer{"test", {{"data.source", "shapes"}, {"encoder.width", "4"}, {"method.name", "simclr"}}};
  const auto config = run::resolve({layer});
  ASSERT_EQ(config.method.encoder.norm, nn::Norm::kBatch);
  core::write_atomically(dir / "run" / "config.yaml", run::to_yaml(config), "test");
  const auto run = run::Run::open(dir / "run");
  const EvalSets judged = make_eval_sets(shapes(), 3, {}, false);
  const auto model = untrained_model(run, judged);
  EXPECT_FALSE(model.encoder->is_training());
  // Behind the stem's norm, train images have mean 0 and variance 1 in inference mode.
  torch::NoGradGuard no_grad;
  auto& encoder = *model.encoder;
  const auto x = data::to_unit_range(judged.adapted.train.pixels);
  const auto y = encoder.bn1->forward(encoder.conv1->forward(x));
  EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 1e-4);
  EXPECT_LT((y.var({0, 2, 3}) - 1).abs().max().item<double>(), 1e-2);
  // The weights are those of the run's seed, as before.
  const auto first = run.untrained({3, 32, 32});
  EXPECT_TRUE(torch::equal(first.encoder->conv1->weight, encoder.conv1->weight));
  EXPECT_DOUBLE_EQ(*encoder.bn1->options.momentum(), *first.encoder->bn1->options.momentum());
}

TEST(RunCurve, OneFileForEveryReader) {
  testing::TempDir dir;
  const auto run = make_run(dir / "run", true);
  CurveOptions options;
  options.data = {.source = "shapes", .limit = 60, .limit_test = 30};
  options.judging = quick_judging();
  options.judging.neighbours.push_back(knn_protocol("dino"));
  std::vector<size_t> told;
  options.on_point = [&](size_t i, size_t n) {
    EXPECT_EQ(n, 2u);
    told.push_back(i);
  };
  const auto result = curve_of_run(run, options);
  EXPECT_EQ(told, (std::vector<size_t>{0, 1}));
  ASSERT_EQ(result.curves.size(), 3u);
  for (const auto& c : result.curves) {
    ASSERT_EQ(c.points.size(), 2u);
    EXPECT_EQ(c.points[0].epoch, 0);
    EXPECT_EQ(c.points[1].epoch, 2);
    EXPECT_EQ(c.points[1].total, 30);
    EXPECT_EQ(c.points[1].forward_units, 290);
    const auto read = read_curve(keep_curve(run, c));
    EXPECT_EQ(read.settings, settings_of(options, c.judge, c.protocol));
    EXPECT_EQ(read.points[1].correct, c.points[1].correct);
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "run" / "eval" / "curve_knn_dino.json"));
  const auto csv = core::read_text(dir / "run" / "eval" / "curve_linear_honest.csv", "test");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_THAT(csv, ::testing::StartsWith("epoch,seconds,forward_units,accuracy,low95,high95\n0,"));
  // What ends the work from outside goes through.
  options.on_point = [](size_t, size_t) { throw 7; };
  EXPECT_THROW(curve_of_run(run, options), int);
}

TEST(RunCurve, PartsOfAnEpochCount) {
  const run::Position first{.step = 4, .epoch = 0, .batch = 4}, later{.step = 25, .epoch = 2, .batch = 5};
  EXPECT_EQ(steps_of_epoch({{{}, first}, {{}, later}}), 10);
  EXPECT_EQ(steps_of_epoch({{{}, first}}), 0);
  EXPECT_DOUBLE_EQ(epochs_of(later, 10), 2.5);
  EXPECT_DOUBLE_EQ(epochs_of({.step = 20, .epoch = 2}, 10), 2);
  EXPECT_DOUBLE_EQ(epochs_of(first, 10), 0.4);
  EXPECT_DOUBLE_EQ(epochs_of(first, 0), 0);
}

TEST(RunCurve, ACheckpointInsideTheFirstEpochIsNotUntrained) {
  testing::TempDir dir;
  const auto folder = dir / "run" / "checkpoints";
  const auto whole = make_run(dir / "run", true);  // step 10, epoch 2
  const auto file = run::list_checkpoints(folder).at(0);
  auto snapshot = run::read_checkpoint(file, false);
  // Before the first step, and two of the five steps of the first epoch.
  for (const int64_t step : {0, 2}) {
    snapshot.position = {.step = step, .batch = step, .seconds = 1, .forward_units = 58};
    run::write_checkpoint(folder, snapshot);
  }
  CurveOptions options;
  options.data = {.source = "shapes", .limit = 60, .limit_test = 30};
  options.judging = quick_judging();
  options.judging.linear = false;
  const auto epochs = [&] {
    std::vector<double> out;
    const auto judged = curve_of_run(whole, options);
    for (const auto& p : judged.curves.at(0).points) out.push_back(p.epoch);
    return out;
  };
  EXPECT_EQ(epochs(), (std::vector<double>{0, 0.4, 2})) << "at 0 stands the untrained encoder alone";
  // In a run that is still in its first epoch nothing says how long that is.
  std::filesystem::remove(file.path);
  EXPECT_THAT(error_of([&] { epochs(); }), HasSubstr("no checkpoint of a whole epoch"));
}

TEST(RunCurve, WhatARollBackGaveUpIsNotJudged) {
  testing::TempDir dir;
  const auto folder = dir / "run" / "checkpoints";
  const auto run = make_run(dir / "run", true);  // step 10, epoch 2
  auto snapshot = run::read_checkpoint(run::list_checkpoints(folder).at(0), false);
  snapshot.position = {.step = 5, .epoch = 1, .seconds = 9, .forward_units = 400, .rollbacks = 1};
  run::write_checkpoint(folder, snapshot);
  CurveOptions options;
  options.data = {.source = "shapes", .limit = 60, .limit_test = 30};
  options.judging = quick_judging();
  options.judging.linear = false;
  const auto judged = curve_of_run(run, options);
  const auto& points = judged.curves.at(0).points;
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].epoch, 1);
  EXPECT_EQ(points[1].forward_units, 400);
}

TEST(CurveFile, ReadsBackAndComparesLikeWithLike) {
  testing::TempDir dir;
  const Curve curve{.method = "ebclr",
                    .data = "shapes",
                    .judge = "knn",
                    .protocol = "paper",
                    .train_images = 60,
                    .test_images = 30,
                    .points = {{0, 0, 0, 0.1, 3, 30}, {5, 1.5, 290, 0.7, 21, 30}},
                    .settings = "K 20"};
  const auto file = curve_file(dir / "run", "knn", "paper");
  write_curve(file, curve);
  Curve read = read_curve(file);
  EXPECT_EQ(read.method, "ebclr");
  ASSERT_EQ(read.points.size(), 2u);
  EXPECT_DOUBLE_EQ(read.points[1].seconds, 1.5);
  EXPECT_EQ(read.points[1].correct, 21);
  check_comparable(curve, read);
  read.data = "cifar10";
  EXPECT_THAT(error_of([&] { check_comparable(curve, read); }),
              HasSubstr("different data (shapes and cifar10)"));
  core::write_atomically(file, "{\"method\": 3}", "test");
  EXPECT_THAT(error_of([&] { read_curve(file); }), HasSubstr("is not a curve"));
  core::write_atomically(file, "no JSON", "test");
  EXPECT_THAT(error_of([&] { read_curve(file); }), HasSubstr("is not a curve"));
  EXPECT_FALSE(error_of([&] { read_curve(dir / "absent.json"); }).empty());
}

TEST(CurveFile, IsWrittenForFoldersOfAnyNameAndThroughNoLink) {
  testing::TempDir dir;
  const Curve curve{.method = "ebclr", .data = "caf\xe9", .judge = "knn", .protocol = "paper"};
  write_curve(dir / "run" / "eval" / "curve.json", curve);
  EXPECT_EQ(read_curve(dir / "run" / "eval" / "curve.json").data, "caf\xef\xbf\xbd");
  std::filesystem::create_directories(dir / "elsewhere");
  std::filesystem::create_directories(dir / "linked");
  std::filesystem::create_directory_symlink(dir / "elsewhere", dir / "linked" / "eval");
  EXPECT_THAT(error_of([&] { write_curve(dir / "linked" / "eval" / "curve.json", curve); }),
              HasSubstr("is a link"));
  EXPECT_TRUE(std::filesystem::is_empty(dir / "elsewhere"));
}

}  // namespace
}  // namespace ebclr::eval
