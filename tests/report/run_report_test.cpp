#include "report/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>

#include "expect_error.h"
#include "image/decode.h"
#include "plot/plot.h"
#include "report/pictures.h"
#include "report/run_record.h"
#include "temp_dir.h"

namespace ebclr::report {
namespace {

namespace fs = std::filesystem;
using ::ebclr::testing::expect_error;
using ::ebclr::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

/// A run folder without checkpoints: configuration and three records.
void make_run(const fs::path& folder, const std::string& method, const std::string& lr) {
  const auto config = run::resolve(
      {{"test",
        {{"method.name", method}, {"data.source", "shapes"}, {"optimizer.lr", lr}, {"train.epochs", "3"}}}});
  write(folder / "config.yaml", run::to_yaml(config));
  std::string lines;
  for (int i = 1; i <= 3; ++i) {
    lines += fmt::format(
        "{{\"step\":{0},\"rollbacks\":0,\"epoch\":{0},\"loss\":{1},\"lr\":{2},\"seconds\":{0},\"forward_"
        "units\":{3}}}\n",
        i, 4.5 - i, lr, 1000 * i);
  }
  write(folder / "metrics.jsonl", lines);
}

/// Nothing computed.
RunReportOptions reading() {
  RunReportOptions options;
  options.evaluate = false;
  return options;
}

const char* kSummary =
    R"({"finished":true,"epochs":3,"steps":3,"seconds":75,"forward_units":3000,"loss":1.25,"ended":"2026-01-01T00:00:00Z"})";

TEST(RunReport, ShowsWhatRunsHaveAndHowTheyDiffer) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");
  make_run(dir / "b", "simclr", "0.002");
  write(dir / "a" / "summary.json", kSummary);
  write(
      dir / "a" / "eval" / "curve_knn_paper.json",
      R"({"method":"ebclr","data":"shapes","judge":"knn","protocol":"paper","train_images":50,"test_images":20,
            "points":[{"epoch":3,"seconds":3,"forward_units":30,"accuracy":0.875},{"epoch":0,"seconds":0,"forward_units":0,"accuracy":0.25}]})");
  auto options = reading();
  options.facts = {{"command", "ebclr report a b"}};
  const auto html = run_report({dir / "a", dir / "b"}, options);
  EXPECT_THAT(html, HasSubstr("<td>finished</td>"));
  EXPECT_THAT(html, HasSubstr(">unfinished</td>"));
  EXPECT_THAT(html, HasSubstr(">1 min 15 s</td>"));
  EXPECT_THAT(html, HasSubstr(">87.50</td>"));
  EXPECT_THAT(html, HasSubstr("Accuracies are from kNN (paper) in eval/curve_knn_paper.json."));
  EXPECT_THAT(html, HasSubstr("kNN (paper) on shapes, 50 train and 20 test images"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">optimizer.lr</th><td>0.001</td><td>0.002</td>"));
  EXPECT_THAT(html, Not(HasSubstr("<th scope=\"row\">train.epochs</th>"))) << "it does not differ";
  EXPECT_THAT(html, HasSubstr("ebclr report a b"));
  EXPECT_THAT(html, HasSubstr("Loss"));
  EXPECT_THAT(html, Not(HasSubstr("Energy gap"))) << "neither run has it";
}

TEST(RunReport, OneRunIsComparedWithTheDefaults) {
  TempDir dir;
  make_run(dir / "a", "simclr", "0.5");
  const auto html = run_report({dir / "a"}, reading());
  EXPECT_THAT(html, HasSubstr("What differs from the defaults of simclr"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">optimizer.lr</th><td class=\"n\">0.5</td>"));
}

TEST(RunReport, DamageIsSaidAndNotFatal) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");
  std::ofstream(dir / "a" / "metrics.jsonl", std::ios::app) << "garbage\n{\"step\":9";
  write(dir / "a" / "summary.json", "{\"finished\":tr");
  write(dir / "a" / "eval" / "curve_knn_paper.json", "[]");
  write(dir / "a" / "eval" / "linear.json",
        R"({"judge":"linear","points":[{"epoch":1},{"epoch":2,"accuracy":0.5}]})");
  write(dir / "a" / "samples" / "epoch-0001.png", "not a picture");
  write(dir / "a" / "checkpoints" / "step-00000001-r0.safetensors", "damaged");
  const auto html = run_report({dir / "a"}, RunReportOptions{});
  EXPECT_THAT(html, HasSubstr("metrics.jsonl: 1 of 5 lines are damaged and were left out"));
  EXPECT_THAT(html, HasSubstr("the last line is incomplete"));
  EXPECT_THAT(html, HasSubstr("summary.json is damaged"));
  EXPECT_THAT(html, HasSubstr("eval/curve_knn_paper.json is damaged"));
  EXPECT_THAT(html, HasSubstr("eval/linear.json: 1 points are damaged"));
  EXPECT_THAT(html, HasSubstr("epoch-0001.png: not a picture"));
  EXPECT_THAT(html, HasSubstr("no confusion matrix and no map: [run]"));
}

TEST(RunReport, NestingHasABound) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");
  // Well-formed, and deep enough for the stack of whoever copies it.
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  write(dir / "a" / "summary.json", "{\"finished\":" + deep + "}");
  write(dir / "a" / "eval" / "x.json", "{\"points\":" + deep + "}");
  const auto html = run_report({dir / "a"}, reading());
  EXPECT_THAT(html, HasSubstr("summary.json is damaged"));
  EXPECT_THAT(html, HasSubstr("eval/x.json is damaged"));
}

TEST(RunReport, ARunThatHasJustBegunIsReadable) {
  TempDir dir;
  make_run(dir / "a", "byol", "0.1");
  fs::remove(dir / "a" / "metrics.jsonl");
  const auto html = run_report({dir / "a"}, reading());
  EXPECT_THAT(html, HasSubstr("not begun"));
  EXPECT_THAT(html, HasSubstr("There are no training curves"));
}

TEST(RunReport, WhatIsNoRunIsOneClearError) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");
  expect_error(
      core::ExitCode::kUsage,
      [&] {
        run_report({dir / "a", dir.path()}, reading());
      },
      "not a run folder");
  expect_error(
      core::ExitCode::kUsage, [&] { run_report({dir / "none"}, reading()); }, "no such run folder");
  expect_error(
      core::ExitCode::kUsage, [&] { run_report({}, reading()); }, "no run");
}

TEST(RunRecord, StatesAndJudgements) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");
  EXPECT_EQ(read_record(dir / "a").state, RunState::kUnfinished);
  write(dir / "a" / "summary.json", kSummary);
  EXPECT_EQ(read_record(dir / "a").state, RunState::kFinished);
  std::ofstream(dir / "a" / "metrics.jsonl", std::ios::app) << "{\"step\":4,\"epoch\":4,\"loss\":1}\n";
  EXPECT_EQ(read_record(dir / "a").state, RunState::kUnfinished) << "made longer: the summary is of before";
  fs::remove(dir / "a" / "summary.json");
  std::ofstream(dir / "a" / "metrics.jsonl", std::ios::app)
      << "{\"event\":\"gave_up\",\"step\":5,\"rollbacks\":3,\"reason\":\"too wild\"}\n";
  EXPECT_EQ(read_record(dir / "a").state, RunState::kGaveUp);
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr("too wild"));

  // What `ebclr eval all --json` prints, with an untrained encoder beside the trained one.
  write(dir / "a" / "eval" / "all.json",
        R"({"data":"shapes","rows":[
          {"subject":"untrained encoder","judge":"linear","protocol":"honest","accuracy":0.1},
          {"subject":"trained encoder","judge":"linear","protocol":"honest","accuracy":0.75,
           "per_class":[{"class":"cat","accuracy":1},{"class":"dog","accuracy":0.5}],"confusion":[[2,0],[1,1]]}]})");
  // A curve on another set, as a study leaves it; other lists of points are not accuracies.
  write(dir / "a" / "eval" / "curve_knn_paper.json",
        R"({"judge":"knn","data":"shapes","points":[{"epoch":1,"accuracy":0.5,"correct":10,"total":20}]})");
  write(dir / "a" / "eval" / "other.json",
        R"({"judge":"frechet","data":"shapes","points":[{"distance":3}]})");
  const auto r = read_record(dir / "a");
  ASSERT_EQ(r.judgements.size(), 2u);
  EXPECT_EQ(r.judgements[0].accuracy, 0.75);
  EXPECT_EQ(r.judgements[1].judge, "knn");
  ASSERT_EQ(r.curves.size(), 1u);
  EXPECT_EQ(r.curves[0].data, "shapes");
  EXPECT_TRUE(r.notes.empty());
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr("dog taken for cat: 1 of 2"));
}

TEST(RunReport, AccuraciesOfOlderWeightsSayWhichTheyAreOf) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");  // three epochs
  const auto judged = [&](const std::string& where) {
    write(dir / "a" / "eval" / "all.json",
          R"({"data":"shapes",)" + where + R"("judge":"linear","protocol":"honest","accuracy":0.75,
             "per_class":[{"class":"cat"},{"class":"dog"}],"confusion":[[2,0],[1,1]]}]})");
  };
  const auto epoch2 = R"("step":2,"rows":[{"subject":"trained encoder","epoch":2,)";
  judged(epoch2);
  // Of two judgements that of the newer weights counts, whatever its file is called.
  write(dir / "a" / "eval" / "a.json",
        R"({"data":"shapes","step":3,"rows":[
          {"subject":"trained encoder","epoch":3,"judge":"knn","protocol":"paper","accuracy":0.5}]})");
  write(dir / "a" / "eval" / "curve_knn_paper.json",
        R"({"judge":"knn","data":"shapes","points":[{"epoch":1,"accuracy":0.25}]})");
  auto html = run_report({dir / "a"}, reading());
  EXPECT_THAT(html, HasSubstr("75.00 (epoch 2 of 3)</td>"));
  EXPECT_THAT(html, HasSubstr("linear (honest) in eval/all.json, of older weights: epoch 2 of 3"));
  EXPECT_THAT(html, HasSubstr(">50.00</td>"));
  EXPECT_THAT(html, HasSubstr("from eval/all.json, of older weights")) << "the matrix is as old";
  fs::remove(dir / "a" / "eval" / "a.json");
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr("25.00 (epoch 1 of 3)</td>"));

  // The newest checkpoint says how far the weights are.
  run::Snapshot newest;
  newest.position = {.step = 39, .epoch = 6, .batch = 3};
  run::write_checkpoint(dir / "a" / "checkpoints", newest);
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr("75.00 (epoch 2 of 6.5)</td>"));
  judged(R"("step":36,"rows":[{"subject":"trained encoder","epoch":6,)");
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr("75.00 (epoch 6 of 6.5)</td>"));
  judged(R"("step":39,"rows":[{"subject":"trained encoder","epoch":6,)");
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr(">75.00</td>"));
  // A file that does not say the step is not blamed for batches.
  judged(R"("rows":[{"subject":"trained encoder","epoch":6,)");
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr(">75.00</td>"));
  judged(R"("rows":[{"subject":"trained encoder","epoch":5,)");
  EXPECT_THAT(run_report({dir / "a"}, reading()), HasSubstr("75.00 (epoch 5 of 6.5)</td>"));
}

TEST(RunRecord, ShortNamesTellRunsApart) {
  EXPECT_THAT(short_names({"x/runs/a", "x/runs/b/"}), ElementsAre("a", "b"));
  EXPECT_THAT(short_names({"x/one/a", "x/two/a"}), ElementsAre("one/a", "two/a"));
  EXPECT_EQ(short_names({"x/a", "x/a"}).size(), 2u);
}

TEST(RunReport, ChainsOverTimeIncludeTheFirstAndTheLast) {
  TempDir dir;
  make_run(dir / "a", "ebclr", "0.001");
  for (int e = 1; e <= 20; ++e) {
    plot::write_png(dir / "a" / fmt::format("samples/epoch-{:04}.png", e),
                    {8, 8, std::vector<uint8_t>(192, 9)});
  }
  const auto html = run_report({dir / "a"}, reading());
  EXPECT_THAT(html, HasSubstr("a, chains after epoch 1<"));
  EXPECT_THAT(html, HasSubstr("a, chains after epoch 20<"));
  EXPECT_THAT(html, Not(HasSubstr("a, chains after epoch 2<")));
  EXPECT_THAT(html, HasSubstr("data:image/jpeg;base64,"));
}

image::Pixels decode(const std::vector<std::byte>& file) {
  return image::decode(file, "picture");
}

TEST(Pictures, ShrinkKeepsProportions) {
  const auto png = plot::encode_png({100, 40, std::vector<uint8_t>(12000, 200)});
  const auto small = decode(shrink(png, 50, "p"));
  EXPECT_EQ(small.width, 50);
  EXPECT_EQ(small.height, 20);
  EXPECT_EQ(decode(shrink(png, 500, "p")).width, 100) << "never enlarged";
  expect_error(
      core::ExitCode::kUsage, [] { shrink({}, 50, "p.png"); }, "p.png");
}

TEST(Pictures, SpriteHoldsEveryImageInItsPlace) {
  auto images = torch::zeros({3, 3, 8, 8}, torch::kUInt8);
  images[0][0].fill_(255);  // red
  images[2][2].fill_(255);  // blue
  const auto sheet = decode(sprite(images, 2, 16));
  ASSERT_EQ(sheet.width, 32);
  ASSERT_EQ(sheet.height, 32);
  const auto rgb = [&](int x, int y) { return sheet.row(y) + 3 * x; };
  EXPECT_GT(rgb(8, 8)[0], 200);
  EXPECT_LT(rgb(8, 8)[2], 60);
  EXPECT_LT(rgb(24, 8)[0], 60);
  EXPECT_GT(rgb(8, 24)[2], 200);
  EXPECT_GT(rgb(24, 24)[1], 200) << "places without an image are white";
  EXPECT_EQ(decode(sprite(torch::zeros({1, 1, 4, 4}, torch::kUInt8), 25, 32)).width, 800);
}

}  // namespace
}  // namespace ebclr::report
