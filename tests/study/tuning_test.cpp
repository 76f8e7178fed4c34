#include "study/tuning.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "expect_error.h"
#include "fake_run.h"
#include "study/perform.h"
#include "study/results.h"
#include "study/write.h"
#include "temp_dir.h"

namespace ebclr::study {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTuned = R"(
title: tuned methods
judges: [knn]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
columns: {axis: data, key: data.source, values: [mnist, fmnist]}
tuning:
  scales: [small]
  column: fmnist
  held_out: 300
  trials:
    simclr: [{optimizer.lr: 0.1}, {optimizer.lr: 0.2}]
    ebclr: [{optimizer.lr: 0.001}, {optimizer.lr: 0.002, method.tau: 0.2}]
)";

Scales scales() {
  Scales s;
  s.names = {"tiny", "small"};
  s.judging = {Judging{}, Judging{}};
  return s;
}

const RunSpec& trial(const Plan& plan, const std::string& id) {
  return plan.runs[plan.find({id, "fmnist"})->runs[0]];
}

TEST(Tuning, TrialsAreRunsOfTheirOwnSeedJudgedOnTrainImages) {
  testing::TempDir dir;
  const auto s = parse_study("mine", kTuned, "mine");
  EXPECT_FALSE(tuning_plan(s, "tiny", scales(), dir.path(), "")) << "that scale is not tuned";
  const auto plan = *tuning_plan(s, "small", scales(), dir.path(), "");
  ASSERT_EQ(plan.runs.size(), 4u);
  for (const auto& r : plan.runs) {
    EXPECT_EQ(r.config.train.seed, 1000u);
    EXPECT_EQ(r.config.data.source, "fmnist");
    EXPECT_EQ(r.config.data.validation, 300);
    const auto o = curve_options(r, "fmnist", {"knn"});
    EXPECT_EQ(o.data.validation, 300);
    EXPECT_THAT(eval::settings_of(o, "knn", "paper"), HasSubstr("judged on 300 other train images"));
  }
  EXPECT_DOUBLE_EQ(trial(plan, "ebclr:1").config.optimizer.lr, 0.002);
  EXPECT_DOUBLE_EQ(trial(plan, "ebclr:1").config.method.ebclr.objective.tau, 0.2);
}

// An idx file: big-endian sizes, then bytes.
void write_idx(const std::filesystem::path& file, std::vector<uint32_t> sizes, const std::string& bytes) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const uint32_t n : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(n >> shift);
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text << bytes;
}

// A small set in place of Fashion-MNIST: images of class c have the brightness 20 c. Test labels may be
// wrong.
void write_set(const std::filesystem::path& root, bool poisoned) {
  for (const auto& [part, count] : {std::pair{"train", 160u}, {"t10k", 40u}}) {
    std::string pixels, labels;
    for (uint32_t i = 0; i < count; ++i) {
      const auto label = static_cast<char>(i % 10);
      pixels += std::string(28 * 28, static_cast<char>(20 * label + static_cast<char>(i % 7)));
      labels += poisoned && part == std::string("t10k") ? '\0' : label;
    }
    write_idx(root / "fmnist" / fmt::format("{}-images-idx3-ubyte", part), {count, 28, 28}, pixels);
    write_idx(root / "fmnist" / fmt::format("{}-labels-idx1-ubyte", part), {count}, labels);
  }
}

TEST(Tuning, NoTestImageDecides) {
  std::string text = kTuned;
  text.replace(text.find("held_out: 300"), 13, "held_out: 50");
  text += R"(
fixed: {encoder.width: 8, head.hidden: 16, head.out: 8, train.batch_size: 32, train.epochs: 1, method.lambda: 0}
)";
  std::vector<std::vector<eval::CurvePoint>> curves;
  for (const bool poisoned : {false, true}) {
    testing::TempDir dir;
    write_set(dir / "data", poisoned);
    const auto plan =
        *tuning_plan(parse_study("mine", text, "mine"), "small", scales(), dir / "out", dir / "data");
    const auto& spec = trial(plan, "ebclr:0");
    const std::atomic<bool> go_on{false};
    ASSERT_EQ(perform(spec, {}, go_on, {}, true), Outcome::kDone);
    const auto found = read_findings(spec);
    ASSERT_TRUE(complete(spec, found));
    curves.push_back(found.curves.at(curve_name("knn", "fmnist")));
    EXPECT_EQ(curves.back().size(), 2u) << "the untrained encoder and the end";
    for (const auto& p : curves.back()) EXPECT_EQ(p.total, 50) << "held-out train images, not the 40 of test";
  }
  EXPECT_EQ(curves[0].back().correct, curves[1].back().correct);
  EXPECT_GT(curves[0].back().correct, 5) << "more than chance, or the comparison says nothing";
}

TEST(Tuning, TheBestTrialOfEachRowHoldsForAllColumns) {
  testing::TempDir dir;
  const auto s = parse_study("mine", kTuned, "mine");
  const auto plan = *tuning_plan(s, "small", scales(), dir.path(), "");
  std::vector<std::string> none(plan.runs.size());
  fake_run(trial(plan, "simclr:0"), {30, 50});
  fake_run(trial(plan, "simclr:1"), {30, 45});
  fake_run(trial(plan, "ebclr:0"), {30, 60});
  EXPECT_EQ(choose(plan, none).unfinished, "not finished");
  EXPECT_TRUE(choose(plan, none).chosen.empty());
  fake_run(trial(plan, "ebclr:1"), {30, 61});
  const auto tuned = choose(plan, none);
  EXPECT_EQ(tuned.unfinished, "");
  const auto chosen = make_plan(with_settings(s, tuned), "small", scales(), 2, {}, dir.path(), "");
  for (const char* column : {"mnist", "fmnist"}) {
    const auto config = [&](const char* row) {
      return chosen.runs[chosen.find({row, column})->runs[1]].config;
    };
    EXPECT_DOUBLE_EQ(config("simclr").optimizer.lr, 0.1);
    EXPECT_DOUBLE_EQ(config("ebclr").optimizer.lr, 0.002);
    EXPECT_EQ(config("ebclr").train.seed, 1u);
  }
  // The report shows all of them.
  auto reported = chosen;
  reported.trials = tuned.trials;
  reported.tuning_note = "chosen by trials";
  const auto md = to_markdown(collect(reported, std::vector<std::string>(reported.runs.size())), {});
  EXPECT_THAT(md, HasSubstr("chosen by trials"));
  EXPECT_THAT(md, HasSubstr("EBCLR, optimizer.lr 0.002, method.tau 0.2 | **61.00** | chosen"));
  EXPECT_THAT(md, HasSubstr("SimCLR, optimizer.lr 0.2 | 45.00 |"));
}

TEST(Tuning, AFailedTrialIsNotPicked) {
  testing::TempDir dir;
  const auto s = parse_study("mine", kTuned, "mine");
  const auto plan = *tuning_plan(s, "small", scales(), dir.path(), "");
  std::vector<std::string> failures(plan.runs.size());
  for (const char* id : {"simclr:0", "simclr:1", "ebclr:0"}) fake_run(trial(plan, id), {30, 50});
  failures[plan.find({"ebclr:1", "fmnist"})->runs[0]] = "[train.guard] gave up";
  const auto tuned = choose(plan, failures);
  EXPECT_EQ(tuned.unfinished, "");
  EXPECT_THAT(tuned.trials[3].problem, HasSubstr("gave up"));
  const auto applied = with_settings(s, tuned);
  EXPECT_EQ(applied.rows[1].set.back().second, "0.001");
}

TEST(Tuning, EveryRowGetsTheSameNumberOfTrials) {
  std::string unfair = kTuned;
  unfair.replace(unfair.find(", {optimizer.lr: 0.2}"), 21, "");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { parse_study("mine", unfair, "mine.yaml"); }, "mine.yaml", "same number");
  // Studies of the same runs share the trials.
  const auto a = *tuning_plan(load_study("table1"), "small", load_scales(), "out", "");
  const auto b = *tuning_plan(load_study("knn1"), "small", load_scales(), "out", "");
  ASSERT_EQ(a.runs.size(), b.runs.size());
  EXPECT_EQ(a.runs[0].folder, b.runs[0].folder);
  EXPECT_FALSE(tuning_plan(load_study("lambda"), "small", load_scales(), "out", ""));
}

}  // namespace
}  // namespace ebclr::study
