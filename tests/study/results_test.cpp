#include "study/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/threads.h"
#include "fake_run.h"
#include "run/provenance.h"
#include "run/run.h"
#include "study/budget.h"
#include "study/verdict.h"
#include "study/write.h"
#include "temp_dir.h"

namespace ebclr::study {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kJudgedStudy = R"(
title: methods & sets
source: Table 0
judges: [knn]
reference: ebclr
rows: {axis: method, key: method.name, values: [simclr, moco, ebclr]}
fixed: {data.source: shapes}
paper:
  knn: {simclr: 60, ebclr: 70}
  efficiency: {simclr: 0.2}
claims:
  - {says: ebclr beats simclr, kind: better, rows: ebclr, than: simclr}
  - {says: ebclr beats moco, kind: better, rows: ebclr, than: moco}
  - {says: all the same, kind: equal_rows, rows: [simclr, moco], within: 40}
  - {says: quick, kind: efficiency, rows: simclr, below: 0.5}
)";

class Collected : public ::testing::Test {
 protected:
  Plan make(int seeds, const char* study = kJudgedStudy) {
    Scales scales;
    scales.names = {"tiny"};
    scales.judging = {Judging{}};
    return make_plan(parse_study("mine", study, "mine"), "tiny", scales, seeds, {}, dir_.path(), "");
  }
  Results results(const Plan& plan) { return collect(plan, std::vector<std::string>(plan.runs.size())); }
  const RunSpec& spec(const Plan& plan, const std::string& row, size_t seed, const std::string& column = "") {
    return plan.runs[plan.find({row, column})->runs[seed]];
  }
  testing::TempDir dir_;
};

TEST(StudentTail, MatchesTheTables) {
  EXPECT_NEAR(student_tail(0, 5), 0.5, 1e-12);
  EXPECT_NEAR(student_tail(12.706, 1), 0.025, 1e-5);
  EXPECT_NEAR(student_tail(4.303, 2), 0.025, 1e-5);
  EXPECT_NEAR(student_tail(2.228, 10), 0.025, 1e-5);
  EXPECT_NEAR(student_tail(1.812, 10), 0.05, 1e-4);
  EXPECT_NEAR(student_tail(-2.228, 10), 0.975, 1e-5);
  EXPECT_NEAR(student_tail(1.96, 100000), 0.025, 1e-5);
}

TEST(Holm, StepsDownAndNeverUp) {
  EXPECT_THAT(holm({0.01}), ::testing::ElementsAre(0.01));
  const auto p = holm({0.04, 0.01, 0.03, 0.005});
  EXPECT_NEAR(p[3], 0.02, 1e-12);
  EXPECT_NEAR(p[1], 0.03, 1e-12);
  EXPECT_NEAR(p[2], 0.06, 1e-12);
  EXPECT_NEAR(p[0], 0.06, 1e-12) << "not below a smaller p-value's";
  EXPECT_THAT(holm({}), ::testing::IsEmpty());
}

TEST(StudentT, MatchesTheTable) {
  EXPECT_NEAR(student_t(1), 12.706, 1e-3);
  EXPECT_NEAR(student_t(2.5), 3.575, 1e-3);
  EXPECT_NEAR(student_t(10), 2.228, 1e-3);
  EXPECT_NEAR(student_t(60), 2.000, 1e-3);
  EXPECT_NEAR(student_t(1000), 1.962, 1e-3);
}

TEST(FTail, MatchesTheTables) {
  EXPECT_NEAR(f_tail(99.0, 2, 2), 0.01, 1e-4);
  EXPECT_NEAR(f_tail(19.0, 2, 2), 0.05, 1e-4);
  EXPECT_NEAR(f_tail(3.326, 5, 10), 0.05, 1e-4);
  EXPECT_NEAR(f_tail(4.965, 1, 10), 0.05, 1e-4) << "the square of Student's t";
  EXPECT_EQ(f_tail(0, 3, 3), 1);
}

TEST(Pool, CellsThatShareTheirSeedsKnowLess) {
  // Six cells that all do what the seed says: one draw of three, not six of them.
  Pool alike;
  alike.add_cells({{1, 2, 3}, {11, 12, 13}, {21, 22, 23}, {31, 32, 33}, {41, 42, 43}, {51, 52, 53}}, 3);
  EXPECT_NEAR(alike.spread().variance, 1, 1e-12);
  EXPECT_NEAR(alike.spread().degrees, 2, 1e-9);
  // Two cells that do the opposite of each other: (R - 1)(S - 1) degrees of freedom.
  Pool opposite;
  opposite.add_cells({{1, 2, 3}, {3, 2, 1}}, 3);
  EXPECT_NEAR(opposite.spread().variance, 1, 1e-12);
  EXPECT_NEAR(opposite.spread().degrees, 2, 1e-9);
  // One that lost a seed counts by itself.
  alike.add_cells({{7, 9}}, 3);
  EXPECT_NEAR(alike.spread().variance, (12 + 2) / 13.0, 1e-12);
}

TEST(Pool, ALoudCellStandsForItself) {
  Pool pool;
  const Values loud = {20, 30, 40};
  for (const auto& quiet : {Values{50, 50.4, 50.2}, Values{60, 60.1, 60.5}, Values{70.3, 70, 70.2}})
    pool.add(quiet);
  pool.add(loud);
  const auto own = fitting(loud, pool.without(loud), pool.spread());
  EXPECT_NEAR(own.variance, 100, 1e-9);
  EXPECT_EQ(own.degrees, 2);
  const Values quiet = {50, 50.4, 50.2};
  EXPECT_EQ(fitting(quiet, pool.without(quiet), pool.spread()).degrees, 8);
}

TEST_F(Collected, MeansIntervalsAndVerdicts) {
  const auto plan = make(2);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  fake_run(spec(plan, "simclr", 1), {30, 40, 52});
  fake_run(spec(plan, "moco", 0), {30, 50, 71});
  fake_run(spec(plan, "moco", 1), {30, 50, 69});
  fake_run(spec(plan, "ebclr", 0), {30, 60, 70}, kEbclr);
  fake_run(spec(plan, "ebclr", 1), {30, 60, 72}, kEbclr);
  const auto r = results(plan);
  const auto& simclr = r.cells.at({"simclr", ""});
  EXPECT_DOUBLE_EQ(simclr.score.at("knn").mean, 51);
  EXPECT_DOUBLE_EQ(simclr.untrained.at("knn").mean, 30);
  // Pooled over three cells with squares 2, 2 and 2: variance 2. Mean squares: between seeds 2/3 with one
  // degree of freedom, the rest 8/3 with two; together 6^2 / ((2/3)^2 / 1 + (16/3)^2 / 2) degrees.
  const double degrees = 36 / (4.0 / 9 + 256.0 / 18);
  EXPECT_NEAR(simclr.score.at("knn").degrees, degrees, 1e-9);
  EXPECT_NEAR(simclr.score.at("knn").high - 51, student_t(degrees) * std::sqrt(2.0 / 2), 1e-9);
  const auto d = difference(r.cells.at({"ebclr", ""}).score.at("knn"), simclr.score.at("knn"));
  EXPECT_DOUBLE_EQ(d.value, 20);
  EXPECT_NEAR(d.half(), student_t(degrees) * std::sqrt(2.0), 1e-9);
  // Seed by seed: means of the seeds 191/3 and 193/3; left over are +-2/3 twice and +-4/3, squares 16/3 in
  // all, with (3 - 1)(2 - 1) degrees of freedom.
  const auto paired = paired_difference(r, "knn", "", "ebclr", "simclr");
  EXPECT_EQ(paired.degrees, 2);
  EXPECT_DOUBLE_EQ(paired.value, 20);
  EXPECT_NEAR(paired.half(), student_t(2) * std::sqrt(16.0 / 3 / 2), 1e-9);
  // EBCLR passes 50 and 52 at its first epoch: half of SimCLR's two epochs, 2900 of its 1200 units.
  const auto& e = simclr.efficiency.at("knn");
  EXPECT_EQ(*e.epochs, (eval::Bracket{0, 0.5}));
  EXPECT_EQ(*e.seconds, (eval::Bracket{0, 0.5}));
  EXPECT_EQ(*e.forward_units, (eval::Bracket{0, 2900.0 / 1200}));
  const auto v = judge_claims(r);
  EXPECT_EQ(v[0].ruling, Ruling::kSupported) << v[0].reason;
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided) << v[1].reason;  // 71 against 70, half-width 7.0
  EXPECT_EQ(v[2].ruling, Ruling::kSupported) << v[2].reason;
  EXPECT_EQ(v[3].ruling, Ruling::kSupported) << v[3].reason;
}

TEST_F(Collected, ALoserIsNotSupported) {
  const auto plan = make(2);
  fake_run(spec(plan, "simclr", 0), {30, 60, 80});
  fake_run(spec(plan, "simclr", 1), {30, 60, 81});
  fake_run(spec(plan, "moco", 0), {30, 31, 32});
  fake_run(spec(plan, "moco", 1), {30, 31, 33});
  fake_run(spec(plan, "ebclr", 0), {62, 60, 61}, kEbclr);
  fake_run(spec(plan, "ebclr", 1), {62, 60, 60}, kEbclr);
  const auto r = results(plan);
  const auto v = judge_claims(r);
  EXPECT_EQ(v[0].ruling, Ruling::kNotSupported);
  EXPECT_THAT(v[0].reason, HasSubstr("-20.0"));
  // Better than MoCo, but EBCLR is below its own untrained encoder: that decides nothing.
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided);
  EXPECT_THAT(v[1].reason, HasSubstr("untrained"));
  EXPECT_EQ(v[2].ruling, Ruling::kNotSupported);  // 80.5 and 32.5 are not within 40
  EXPECT_EQ(v[3].ruling, Ruling::kNotSupported);  // 80 was never reached
  EXPECT_THAT(v[3].reason, HasSubstr("> 1"));
}

TEST_F(Collected, OneSeedDecidesNothing) {
  const auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  fake_run(spec(plan, "moco", 0), {30, 31, 90});
  fake_run(spec(plan, "ebclr", 0), {30, 60, 70}, kEbclr);
  const auto r = results(plan);
  // The interval is over the 1,000 test images; it is shown, and rules on nothing.
  const auto& e = r.cells.at({"simclr", ""}).score.at("knn");
  EXPECT_FALSE(e.over_seeds);
  EXPECT_NEAR(e.low, 46.9, 0.2);
  for (const auto& v : judge_claims(r)) {
    EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.claim.says;
    EXPECT_THAT(v.reason, HasSubstr("one seed decides nothing")) << v.claim.says;
  }
}

constexpr const char* kSampled = R"(
title: samples
judges: [frechet-noise, frechet-data]
rows: {axis: gamma, key: method.gamma, values: [0, 0.1]}
fixed: {data.source: shapes, method.name: ebclr}
claims:
  - {says: some helps, kind: better, rows: 0.1, than: 0}
)";

TEST_F(Collected, OneDistanceDecidesNothingEither) {
  // With one seed the variance was zero and the verdict "supported +- 0.0".
  for (const int seeds : {1, 2}) {
    const auto plan = make(seeds, kSampled);
    for (int seed = 0; seed < seeds; ++seed)
      for (const auto& [row, distance] : {std::pair{"0", 40.0}, std::pair{"0.1", 9.0}}) {
        const auto& s = spec(plan, row, static_cast<size_t>(seed));
        fake_run(s, {30, 40, 50});
        fake_distance(s, "frechet-noise", distance + 0.2 * seed + (row[1] ? 0.3 * seed : 0));
        fake_distance(s, "frechet-data", distance);
        EXPECT_TRUE(complete(s, read_findings(s)));
      }
    const auto r = results(plan);
    const auto v = judge_claims(r)[0];
    EXPECT_EQ(v.ruling, seeds == 1 ? Ruling::kUndecided : Ruling::kSupported) << v.reason;
    if (seeds == 1) {
      EXPECT_THAT(v.reason, HasSubstr("one seed decides nothing"));
    }
    const auto md = to_markdown(r, {});
    EXPECT_THAT(md, HasSubstr("chains from noise"));
    EXPECT_THAT(md, HasSubstr("chains from data"));
    EXPECT_THAT(md, HasSubstr("50 samples after 20 steps"));
    EXPECT_THAT(md, HasSubstr("moves a distance by about 0.30"));
  }
}

TEST_F(Collected, ALostSeedKeepsTheCommonSpreadAndIsMarked) {
  const auto plan = make(2);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  fake_run(spec(plan, "simclr", 1), {30, 40, 52});
  fake_run(spec(plan, "moco", 0), {30, 50, 66});
  fake_run(spec(plan, "moco", 1), {30, 50, 64});
  fake_run(spec(plan, "ebclr", 0), {30, 60, 70}, {.units_per_epoch = 2900, .rollbacks = 2});
  std::vector<std::string> failures(plan.runs.size());
  failures[plan.find({"ebclr", ""})->runs[1]] = "[train.guard] gave up";
  const auto r = collect(plan, failures);
  const auto& cell = r.cells.at({"ebclr", ""});
  const auto& e = cell.score.at("knn");
  EXPECT_TRUE(e.over_seeds) << "not Wilson's interval over test images";
  EXPECT_NEAR(e.variance, 2, 1e-9) << "the pooled variance over one seed";
  EXPECT_EQ(cell.lost("knn"), 1u);
  EXPECT_EQ(cell.mark("knn"), "1 seed lost, rolled back 2 times");
  const auto v = judge_claims(r)[0];
  EXPECT_THAT(v.reason, HasSubstr("EBCLR: 1 seed lost, rolled back 2 times"));
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << "the lost seed may have been the bad one";
  const auto md = to_markdown(r, {});
  EXPECT_THAT(md, HasSubstr("70.0 ± 18.0 (70) \\* †"));
  EXPECT_THAT(md, HasSubstr("* a seed is missing"));
  EXPECT_THAT(md, HasSubstr("† training was rolled back"));
  EXPECT_THAT(md, HasSubstr("seed 0: training was rolled back 2 times"));
  const auto csv = to_csv(r);
  EXPECT_THAT(csv,
              HasSubstr("0.700000,700,1000," + spec(plan, "ebclr", 0).folder.filename().string() + ",2,"));
  EXPECT_THAT(csv, HasSubstr("gave up"));
}

TEST_F(Collected, WhatOneJudgeOwesIsNoLossOfAnother) {
  auto text = std::string(kJudgedStudy);
  text.replace(text.find("[knn]"), 5, "[knn, knn-dino]");
  const auto plan = make(2, text.c_str());
  for (size_t seed = 0; seed < 2; ++seed) {
    const auto d = static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 50 + d});
    fake_run(spec(plan, "moco", seed), {30, 40, 61 - d});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 90 + d / 2}, kEbclr);
    const auto& folder = spec(plan, "ebclr", seed).folder;
    std::filesystem::remove(eval::curve_file(folder, "knn", "dino", ""));
  }
  const auto r = results(plan);
  const auto& cell = r.cells.at({"ebclr", ""});
  EXPECT_EQ(cell.lost("knn"), 0u);
  EXPECT_EQ(cell.lost("knn-dino"), 2u);
  const auto claims = judge_claims(r);
  EXPECT_EQ(claims[0].ruling, Ruling::kSupported) << claims[0].reason;
  EXPECT_THAT(claims[0].reason, Not(HasSubstr("lost")));
  const auto md = to_markdown(r, {});
  EXPECT_THAT(md, HasSubstr("- EBCLR, seeds 0, 1: not judged yet by knn-dino\n"));
  EXPECT_THAT(md, Not(HasSubstr("a seed is missing"))) << "no cell with a figure lacks one";
}

TEST_F(Collected, SeedsWithTheSameFateShareALine) {
  const auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) fake_run(spec(plan, "simclr", seed), {30, 40, 50});
  fake_run(spec(plan, "moco", 1), {30, 50, 66});
  std::vector<std::string> failures(plan.runs.size());
  failures[plan.find({"ebclr", ""})->runs[1]] = "[train.guard] gave up";
  const auto md = to_markdown(collect(plan, failures), {});
  EXPECT_THAT(md, HasSubstr("- MoCo v2, seeds 0, 2: not finished\n"));
  EXPECT_THAT(md, HasSubstr("- EBCLR, seeds 0, 2: not finished\n"));
  EXPECT_THAT(md, HasSubstr("- EBCLR, seed 1: failed: [train.guard] gave up\n"));
}

TEST_F(Collected, ATargetBelowTheReferencesFirstWeightsIsNone) {
  const auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    const auto d = static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {55, 60, 69 + d}, {.total = 10000});
    fake_run(spec(plan, "moco", seed), {55, 56, 80 + d}, {.total = 10000});
    fake_run(spec(plan, "ebclr", seed), {72, 78, 85 + d}, {.units_per_epoch = 2900, .total = 10000});
  }
  const auto r = results(plan);
  const auto v = judge_claims(r)[3];
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.reason;
  EXPECT_THAT(v.reason, HasSubstr("no target: the reference has 72.0 % before training"));
  EXPECT_FALSE(r.cells.at({"simclr", ""}).efficiency.at("knn").epochs);
  EXPECT_TRUE(r.cells.at({"moco", ""}).efficiency.at("knn").epochs) << "80 is above 72";
  EXPECT_THAT(to_markdown(r, {}), HasSubstr("no target"));
}

TEST_F(Collected, ARatioAroundTheLimitIsOpen) {
  auto plan = make(2);
  Claim quarter;
  quarter.kind = ClaimKind::kEfficiency;
  quarter.says = "a quarter";
  quarter.judge = "knn";
  quarter.rows = {"simclr"};
  quarter.below = 0.25;
  plan.study.claims = {quarter};
  for (size_t seed = 0; seed < 2; ++seed) {
    fake_run(spec(plan, "simclr", seed), {30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50});
    fake_run(spec(plan, "ebclr", seed), {30, 35, 45, 55, 56, 57, 58, 59, 60, 61, 62}, kEbclr);
  }
  // Reached at checkpoint 3 of 10: somewhere in (0.2, 0.3].
  auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.reason;
  EXPECT_THAT(v.reason, HasSubstr("(0.2, 0.3] and (0.2, 0.3]"));
  plan.study.claims[0].below = 0.3;
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kSupported);
  plan.study.claims[0].below = 0.2;
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kNotSupported);
}

constexpr const char* kManyColumns = R"(
title: batches
judges: [knn]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
columns: {axis: batch, key: train.batch_size, values: [16, 32, 64, 128]}
fixed: {data.source: shapes}
claims:
  - {says: better everywhere, kind: better, rows: ebclr, than: simclr}
  - {says: as good with small batches, kind: equal, rows: ebclr, within: 1.5, pairs: [[16, 128]]}
)";

TEST_F(Collected, SeveralComparisonsAreCorrectedFor) {
  const auto plan = make(2, kManyColumns);
  for (const char* column : {"16", "32", "64", "128"}) {
    // A difference of 2.1 in each column; the other way round in every second seed by 1.4.
    fake_run(spec(plan, "simclr", 0, column), {30, 50});
    fake_run(spec(plan, "simclr", 1, column), {30, 50});
    fake_run(spec(plan, "ebclr", 0, column), {30, 51.4});
    fake_run(spec(plan, "ebclr", 1, column), {30, 52.8});
  }
  const auto r = results(plan);
  const auto v = judge_claims(r)[0];
  EXPECT_EQ(v.comparisons, 4u);
  const auto d = paired_difference(r, "knn", "16", "ebclr", "simclr");
  EXPECT_EQ(d.degrees, 4) << "one of each column is too few, so that of all is taken";
  EXPECT_GT(d.value, d.half()) << "each alone would hold";
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.reason;
  EXPECT_THAT(how_verdicts_are_reached(), HasSubstr("Holm"));
}

TEST_F(Collected, EqualityPairsItsSeeds) {
  const auto plan = make(3, kManyColumns);
  for (size_t seed = 0; seed < 3; ++seed) {
    // Seeds are far apart, but alike in all columns.
    const double common = 10.0 * static_cast<double>(seed);
    for (const char* column : {"16", "32", "64", "128"}) {
      fake_run(spec(plan, "simclr", seed, column), {10, 20 + common});
      fake_run(
          spec(plan, "ebclr", seed, column),
          {10, 40 + common + (column[0] == '1' ? 0.1 * static_cast<double>(seed) * (column[1] == '2') : 0)});
    }
  }
  const auto v = judge_claims(results(plan))[1];
  EXPECT_EQ(v.ruling, Ruling::kSupported) << v.reason;
}

TEST_F(Collected, OneUntrainedEncoderIsNotCountedSeveralTimes) {
  const auto plan = make(2);
  fake_run(spec(plan, "simclr", 0), {30, 50});
  fake_run(spec(plan, "simclr", 1), {34, 52});
  fake_run(spec(plan, "moco", 0), {30, 66});
  fake_run(spec(plan, "moco", 1), {34, 64});
  fake_run(spec(plan, "ebclr", 0), {20, 70}, kEbclr);
  fake_run(spec(plan, "ebclr", 1), {20, 72}, kEbclr);
  const auto r = results(plan);
  // Two different encoders: squares 8 and 0 over two degrees of freedom, not 16 over three.
  EXPECT_NEAR(r.cells.at({"simclr", ""}).untrained.at("knn").variance, 8.0 / 2 / 2, 1e-9);
}

TEST_F(Collected, EqualBudgetsCutTheLongerRun) {
  const auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    const auto d = static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 50, 60, 70 + d}, {.units_per_epoch = 600});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 71 + d, 72, 73}, {.units_per_epoch = 1000});
  }
  const auto r = results(plan);
  const auto units = equal_budget(r, "", "knn", Currency::kForwardUnits);
  EXPECT_DOUBLE_EQ(units.spent, 2400);
  EXPECT_DOUBLE_EQ(units.rows.at("simclr").score.mean, 70.5);
  EXPECT_DOUBLE_EQ(units.rows.at("ebclr").score.mean, 71.5) << "2,000 of 2,400 units are two epochs";
  EXPECT_TRUE(units.rows.at("ebclr").score.over_seeds);
  EXPECT_NEAR(units.rows.at("ebclr").used, 2000.0 / 2400, 1e-9);
  EXPECT_DOUBLE_EQ(equal_budget(r, "", "knn", Currency::kSeconds).rows.at("ebclr").score.mean, 73);
  EXPECT_THAT(to_markdown(r, {}), ::testing::ContainsRegex("71.5 .* \\(83 %\\)"));
}

// A seed that was rolled back spent more than the others; it is read at its end all the same.
TEST_F(Collected, ARolledBackSeedIsNotCutShortByItsOwnBudget) {
  const auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    fake_run(spec(plan, "simclr", seed), {30, 50, 70}, {.units_per_epoch = seed == 0 ? 600.0 : 640.0});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 80}, kEbclr);
    fake_run(spec(plan, "moco", seed), {30, 60, 72}, {.units_per_epoch = seed == 0 ? 640.0 : 400.0});
  }
  const auto b = equal_budget(results(plan), "", "knn", Currency::kForwardUnits);
  EXPECT_DOUBLE_EQ(b.spent, 1280);
  EXPECT_DOUBLE_EQ(b.rows.at("simclr").score.mean, 70);
  EXPECT_DOUBLE_EQ(b.rows.at("moco").used, 800.0 / 1280) << "the seed that spent least";
}

TEST_F(Collected, ABudgetIsNeverReadAtFirstWeights) {
  const auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    // A seed a little slower than the other, and a row a little dearer than the cheapest: both are within.
    fake_run(spec(plan, "simclr", seed), {30, 70},
             {.units_per_epoch = 1000, .seconds_per_epoch = 10 + 0.2 * static_cast<double>(seed)});
    fake_run(spec(plan, "moco", seed), {30, 66}, {.units_per_epoch = 1008, .seconds_per_epoch = 10.4});
    fake_run(spec(plan, "ebclr", seed), {30, 80}, {.units_per_epoch = 3000, .seconds_per_epoch = 30});
  }
  const auto r = results(plan);
  for (const auto currency : {Currency::kForwardUnits, Currency::kSeconds}) {
    const auto b = equal_budget(r, "", "knn", currency);
    EXPECT_DOUBLE_EQ(b.rows.at("simclr").score.mean, 70);
    EXPECT_DOUBLE_EQ(b.rows.at("moco").score.mean, 66);
    EXPECT_EQ(b.rows.count("ebclr"), 0u) << "it has only its untrained encoder there";
  }
  EXPECT_DOUBLE_EQ(equal_budget(r, "", "knn", Currency::kSeconds).spent, 10) << "the quicker seed's";
}

// A machine that was busy while one seed was trained says nothing about the method.
TEST_F(Collected, ABusyHourDoesNotMoveABudgetInSeconds) {
  const auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    const double slow = seed == 0 ? 1 : 4;
    fake_run(spec(plan, "simclr", seed), {30, 50, 70},
             {.units_per_epoch = 600, .seconds_per_epoch = 10 * slow});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 80},
             {.units_per_epoch = 1200, .seconds_per_epoch = 20 / slow});
  }
  const auto r = results(plan);
  const auto b = equal_budget(r, "", "knn", Currency::kSeconds);
  // EBCLR passes 70 at its second epoch: 2 of 5 seconds each, of SimCLR's 20; nor does it move efficiency.
  EXPECT_EQ(*r.cells.at({"simclr", ""}).efficiency.at("knn").seconds, (eval::Bracket{0.25, 0.5}));
  EXPECT_DOUBLE_EQ(r.cells.at({"simclr", ""}).seconds, 20);
  EXPECT_DOUBLE_EQ(b.spent, 10) << "two epochs of ebclr at 5 seconds each";
  EXPECT_DOUBLE_EQ(b.rows.at("simclr").score.mean, 50);
  EXPECT_DOUBLE_EQ(b.rows.at("ebclr").score.mean, 80);
}

TEST_F(Collected, WhoIsReadLongBeforeTheBudgetIsSpentDoesNotLoseByIt) {
  auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) {
    const double d = seed == 1 ? 0.4 : 0.1 * static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 60 + d}, {.units_per_epoch = 750});
    fake_run(spec(plan, "ebclr", seed), {30, 50 - d, 70 - d}, {.units_per_epoch = 1200});
  }
  plan.study.claims.resize(1);
  plan.study.claims[0].at = Currency::kForwardUnits;
  auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.reason;
  EXPECT_THAT(v.reason, HasSubstr("EBCLR is read at 80 % of the budget"));
  // It may win all the same.
  for (size_t seed = 0; seed < 3; ++seed)
    fake_run(spec(plan, "ebclr", seed), {30, 66 + 0.1 * static_cast<double>(seed), 70},
             {.units_per_epoch = 1200});
  v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kSupported) << v.reason;
}

TEST_F(Collected, WhatWasLeftOutLeavesAClaimOpenAndDoesNotSaveIt) {
  auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) {
    const double d = 0.1 * static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 50 + d});
    fake_run(spec(plan, "moco", seed), {30, 40, 80 - d});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 70}, kEbclr);
  }
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kSupported);
  plan.study.columns.push_back({"mnist", "MNIST", {}, ""});
  const auto v = judge_claims(results(plan));
  EXPECT_EQ(v[0].ruling, Ruling::kUndecided) << v[0].reason;
  EXPECT_THAT(v[0].reason, HasSubstr("holds in 1 of 2 comparisons"));
  EXPECT_THAT(v[0].reason, HasSubstr("not run: MNIST"));
  EXPECT_EQ(v[1].ruling, Ruling::kNotSupported) << v[1].reason;
}

// A part of a study must not decide what the whole leaves open.
TEST_F(Collected, WhatWasLeftOutIsCorrectedFor) {
  auto plan = make(3);
  const double moco[] = {70, 71.6, 70.3};
  for (size_t seed = 0; seed < 3; ++seed) {
    fake_run(spec(plan, "moco", seed), {30, 40, moco[seed]});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 67 + 0.1 * static_cast<double>(seed)}, kEbclr);
  }
  plan.study.claims = {plan.study.claims[1]};
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kNotSupported);
  for (const char* set : {"mnist", "fmnist", "cifar10"}) plan.study.columns.push_back({set, set, {}, ""});
  const auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.comparisons, 4u);
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.reason;
  EXPECT_THAT(v.reason, HasSubstr("(not after the correction for 4 comparisons)"));
}

TEST_F(Collected, ARivalThatLostASeedRefutesNothing) {
  auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) {
    const double d = 0.1 * static_cast<double>(seed);
    if (seed > 0) fake_run(spec(plan, "simclr", seed), {30, 40, 80 + d});
    fake_run(spec(plan, "moco", seed), {30, 40, 50 - d});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 70 + d}, kEbclr);
  }
  const auto v = judge_claims(results(plan));
  EXPECT_EQ(v[0].ruling, Ruling::kUndecided) << v[0].reason;
  EXPECT_THAT(v[0].reason, HasSubstr("SimCLR lost a seed"));
  plan.study.claims[2].within = 5;
  const auto equal = judge_claims(results(plan))[2];
  EXPECT_EQ(equal.ruling, Ruling::kUndecided) << "nor are its survivors unequal to others: " << equal.reason;
  EXPECT_EQ(v[3].ruling, Ruling::kUndecided) << "efficiency wants all seeds too: " << v[3].reason;
}

constexpr const char* kTwoSets = R"(
title: sets
judges: [knn]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
columns:
  - {axis: data, key: data.source, values: [shapes, shapes28]}
  - {axis: batch, key: train.batch_size, values: [16, 32, 64]}
claims:
  - {says: better everywhere, kind: better, rows: ebclr, than: simclr}
  - {says: at equal cost too, kind: better, rows: ebclr, than: simclr, at: units}
  - {says: batches, kind: equal, rows: ebclr, within: 1, pairs: [[shapes/16, shapes/64], [shapes28/16, shapes28/64]]}
)";

// Seeds scatter ten times as far on one set as on the other: neither borrows from the other.
TEST_F(Collected, SetsDoNotShareTheirSpread) {
  const auto plan = make(3, kTwoSets);
  const double jitter[2][3][3] = {{{0, 1, 3}, {2, 0, 1}, {0, 3, 1}}, {{1, 0, 3}, {3, 1, 0}, {0, 1, 2}}};
  for (const bool loud : {false, true})
    for (size_t batch = 0; batch < 3; ++batch)
      for (size_t seed = 0; seed < 3; ++seed) {
        const auto column = std::string(loud ? "shapes28/" : "shapes/") + (batch == 0   ? "16"
                                                                           : batch == 1 ? "32"
                                                                                        : "64");
        const double by = loud ? 1 : 0.1;
        fake_run(spec(plan, "simclr", seed, column),
                 {30 + by * jitter[0][batch][seed], 50 + by * jitter[0][batch][seed]});
        fake_run(spec(plan, "ebclr", seed, column),
                 {30 + by * jitter[1][batch][seed], 53 + by * jitter[1][batch][seed]});
      }
  const auto r = results(plan);
  const auto quiet = paired_difference(r, "knn", "shapes/16", "ebclr", "simclr"),
             loud = paired_difference(r, "knn", "shapes28/16", "ebclr", "simclr");
  EXPECT_NEAR(quiet.half() * 10, loud.half(), 1e-6);
  EXPECT_EQ(quiet.degrees, 6) << "three columns of its own set, two each";
  const auto& cell = r.cells.at({"ebclr", "shapes/16"});
  const auto& other = r.cells.at({"ebclr", "shapes28/16"});
  for (const auto which : {&CellResult::score, &CellResult::untrained})
    EXPECT_NEAR(100 * (cell.*which).at("knn").variance, (other.*which).at("knn").variance, 1e-6);
  // Pairs at equal cost and of two columns go the same way: the quiet set alone would hold.
  const auto v = judge_claims(r);
  EXPECT_THAT(v[1].reason, HasSubstr("holds in 5 of 6 comparisons; open: EBCLR against SimCLR on shapes28"));
  EXPECT_THAT(v[2].reason, HasSubstr("holds in 1 of 2 comparisons")) << v[2].reason;
}

TEST_F(Collected, CellsJudgedOnOtherImagesAreNotCompared) {
  auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) {
    const double d = 0.1 * static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 50 + d}, {.total = 10000});
    fake_run(spec(plan, "moco", seed), {30, 40, 50 + d}, {.total = seed == 0 ? 500 : 1000});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 70 - d}, kEbclr);
  }
  const auto v = judge_claims(results(plan));
  EXPECT_EQ(v[0].ruling, Ruling::kUndecided) << v[0].reason;
  EXPECT_THAT(v[0].reason,
              HasSubstr("measured differently: 0 train and 1000 test images; 0 train and 10000 test"));
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided) << v[1].reason;
  EXPECT_THAT(v[1].reason, HasSubstr("different things by different seeds"));
}

TEST_F(Collected, WhatIsDoneIsDoneWhereItsSetIsAbsent) {
  auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  for (auto& run : plan.runs) run.blocked = "shapes are out of stock";
  const auto md = to_markdown(results(plan), {});
  EXPECT_THAT(md, Not(HasSubstr("SimCLR, seed 0: shapes are out of stock")));
  EXPECT_THAT(md, HasSubstr("MoCo v2, seed 0: shapes are out of stock"));
}

// Two rows are all that a column has: its differences are held against those of the other columns.
TEST_F(Collected, ALoudColumnOfTwoRowsHasItsOwnInterval) {
  const auto plan = make(3, kManyColumns);
  const double quiet[] = {0, 0.1, 0.2}, loud[] = {0, 6, 2};
  for (const char* column : {"16", "32", "64", "128"})
    for (size_t seed = 0; seed < 3; ++seed) {
      const bool is_loud = std::string(column) == "64";
      fake_run(spec(plan, "simclr", seed, column), {30, 50 + (is_loud ? loud : quiet)[seed]});
      fake_run(spec(plan, "ebclr", seed, column), {30, 53 - quiet[seed]});
    }
  const auto r = results(plan);
  EXPECT_GT(paired_difference(r, "knn", "64", "ebclr", "simclr").half(), 5);
  EXPECT_EQ(paired_difference(r, "knn", "64", "ebclr", "simclr").degrees, 2);
  EXPECT_EQ(paired_difference(r, "knn", "16", "ebclr", "simclr").degrees, 8);
}

TEST_F(Collected, AClaimMayHoldAtTheEndAndFailAtEqualCost) {
  auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) {
    const double d = seed == 1 ? 0.4 : 0.1 * static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 60 + d}, {.units_per_epoch = 600});
    fake_run(spec(plan, "ebclr", seed), {30, 50 - d, 70 - d}, {.units_per_epoch = 1200});
  }
  plan.study.claims.resize(1);
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kSupported);
  plan.study.claims[0].at = Currency::kForwardUnits;
  const auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kNotSupported) << v.reason;  // 50 against 60
  EXPECT_THAT(v.reason, HasSubstr("with equal forward-units -10.4"));
  // Who wins at equal cost must have learnt something by then, not by its end.
  for (size_t seed = 0; seed < 3; ++seed)
    fake_run(spec(plan, "simclr", seed), {10, 20, 21 + 0.1 * static_cast<double>(seed)},
             {.units_per_epoch = 600});
  for (size_t seed = 0; seed < 3; ++seed)
    fake_run(spec(plan, "ebclr", seed), {30, 30.1 - 0.3 * static_cast<double>(seed == 1), 70},
             {.units_per_epoch = 1200});
  const auto early = judge_claims(results(plan))[0];
  EXPECT_EQ(early.ruling, Ruling::kUndecided) << early.reason;
  EXPECT_THAT(early.reason, HasSubstr("EBCLR is not above its own untrained encoder"));
  plan.study.claims[0].at = Currency::kEpochs;
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kSupported);
}

TEST_F(Collected, WithoutSpreadNothingIsSupported) {
  // Differences that are the same in both seeds, as accuracies of few images may be: "supported +- 0.0" it
  // was.
  const auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    const auto d = static_cast<double>(seed);
    fake_run(spec(plan, "simclr", seed), {30, 40, 50 + d});
    fake_run(spec(plan, "moco", seed), {30, 40, 55 + d});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 70 + d}, kEbclr);
  }
  const auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kUndecided) << v.reason;
  EXPECT_THAT(v.reason, HasSubstr("no spread to judge by"));
}

TEST_F(Collected, TwoThatLearntNothingAreNeitherEqualNorGoodEnough) {
  auto plan = make(3);
  for (size_t seed = 0; seed < 3; ++seed) {
    const auto d = 0.1 * static_cast<double>(seed);
    for (const char* row : {"simclr", "moco"}) fake_run(spec(plan, row, seed), {30, 30, 30 + d});
    fake_run(spec(plan, "ebclr", seed), {30, 30, 29.9 + d * d}, kEbclr);
  }
  plan.study.claims[0].by = -5;  // not worse by more
  const auto v = judge_claims(results(plan));
  EXPECT_EQ(v[0].ruling, Ruling::kUndecided) << v[0].reason;
  EXPECT_EQ(v[2].ruling, Ruling::kUndecided) << v[2].reason;
  for (const auto& one : {v[0], v[2]}) EXPECT_THAT(one.reason, HasSubstr("untrained"));
}

TEST_F(Collected, ALoudRowHasItsOwnInterval) {
  const auto plan = make(3);
  const double quiet[] = {0, 0.2, 0.1}, other[] = {0.1, 0, 0.15}, loud[] = {0, 9, 3};
  for (size_t seed = 0; seed < 3; ++seed) {
    fake_run(spec(plan, "simclr", seed), {30, 40, 50 + loud[seed]});
    fake_run(spec(plan, "moco", seed), {30, 40, 55 + quiet[seed]});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 61 + other[seed]}, kEbclr);
  }
  const auto r = results(plan);
  const auto to_loud = paired_difference(r, "knn", "", "ebclr", "simclr");
  EXPECT_EQ(to_loud.degrees, 2) << "that of its three seeds alone";
  EXPECT_GT(to_loud.half(), 10);
  EXPECT_EQ(judge_claims(r)[0].ruling, Ruling::kUndecided);
}

constexpr const char* kStrangerStudy = R"(
title: strangers
judges: [strangers-combined, strangers-energy]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
fixed: {data.source: shapes}
claims:
  - {says: together better than alone, kind: better, rows: ebclr, than: ebclr, than_judge: strangers-energy}
  - {says: better than the other, kind: better, rows: ebclr, than: simclr}
)";

TEST_F(Collected, JudgesOfOneRowCanBeComparedAndUnequalStrangersCannot) {
  const auto plan = make(3, kStrangerStudy);
  for (size_t seed = 0; seed < 3; ++seed) {
    const double d = seed == 1 ? 0.7 : 0.2 * static_cast<double>(seed);
    for (const char* row : {"simclr", "ebclr"}) {
      const auto& s = spec(plan, row, seed);
      fake_run(s, {30, 50});
      fake_distance(s, "strangers-combined", (row[0] == 'e' ? 88 : 78) + d);
      fake_distance(s, "strangers-energy", 60 - d);
    }
  }
  auto v = judge_claims(results(plan));
  EXPECT_EQ(v[0].ruling, Ruling::kSupported) << v[0].reason;
  EXPECT_THAT(v[0].reason, HasSubstr("strangers-combined against strangers-energy +28"));
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided) << "equal differences have no spread: " << v[1].reason;
  fake_distance(spec(plan, "ebclr", 0), "strangers-combined", 88.9, "mean over shapes, noise");
  v = judge_claims(results(plan));
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided) << v[1].reason;
  EXPECT_THAT(v[1].reason, HasSubstr("measured differently"));
}

TEST_F(Collected, WhatTrainedTheRunsIsSaid) {
  const auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  fake_run(spec(plan, "moco", 0), {30, 35, 45}, {.instructions = "avx512"});
  const auto md = to_markdown(results(plan), {});
  EXPECT_THAT(md, HasSubstr("not all were trained alike"));
  EXPECT_THAT(md, HasSubstr("native avx512, 2 threads on " + core::processor_name() + " (1 run)"));
  EXPECT_THAT(md, HasSubstr("images, shapes: 10000 train, 1000 test\n"));
  EXPECT_THAT(md, HasSubstr("native avx512"));
  EXPECT_THAT(to_csv(results(plan)),
              HasSubstr("," + run::this_version() + "," + run::this_code() + ",native avx2,2,"));
  std::ofstream(spec(plan, "moco", 0).folder / "provenance.json") << R"({"sessions": [{"code": "0ld"}]})";
  EXPECT_THAT(to_markdown(results(plan), {}), HasSubstr("the training code has changed since"));
  std::filesystem::remove(spec(plan, "moco", 0).folder / "provenance.json");
  EXPECT_THAT(to_markdown(results(plan), {}), HasSubstr("no record of what trained"));
}

TEST_F(Collected, AFolderMayHaveABlankInItsName) {
  const auto plan = make(1, R"(
title: photos
judges: [knn, knn-dino]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
fixed: {data.source: my own photos}
)");
  for (const char* row : {"simclr", "ebclr"}) fake_run(spec(plan, row, 0), {30, 40, 50}, {.total = 300});
  const auto r = results(plan);
  EXPECT_EQ(r.findings[0].curves.count(curve_name("knn", "my own photos")), 1u);
  const auto md = to_markdown(r, {});
  EXPECT_THAT(md, HasSubstr("images, my own photos: "));
  EXPECT_THAT(md, HasSubstr(" 300 test\n"));
}

TEST_F(Collected, BetterCanMeanByAMarginOrNotWorseByMore) {
  auto plan = make(3);
  const double jitter[] = {0, 0.3, 0.1};
  for (size_t seed = 0; seed < 3; ++seed) {
    fake_run(spec(plan, "simclr", seed), {30, 60, 70 + static_cast<double>(seed)});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 73 + static_cast<double>(seed) + jitter[seed]}, kEbclr);
  }
  plan.study.claims.resize(1);
  const auto ruling = [&](double by) {
    plan.study.claims[0].by = by;
    return judge_claims(results(plan))[0].ruling;
  };
  EXPECT_EQ(ruling(0), Ruling::kSupported);
  EXPECT_EQ(ruling(-0.5), Ruling::kSupported);
  EXPECT_EQ(ruling(1), Ruling::kSupported);
  EXPECT_EQ(ruling(3.1), Ruling::kUndecided);
  EXPECT_EQ(ruling(6), Ruling::kNotSupported);
}

TEST_F(Collected, AScaleThatDecidesNothingLeavesClaimsOpen) {
  auto plan = make(2);
  for (size_t seed = 0; seed < 2; ++seed) {
    fake_run(spec(plan, "simclr", seed), {30, 60, 80 + static_cast<double>(seed)});
    fake_run(spec(plan, "ebclr", seed), {30, 60, 61 + 1.2 * static_cast<double>(seed)}, kEbclr);
  }
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kNotSupported);
  plan.decides = false;
  const auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kUndecided);
  EXPECT_THAT(v.reason, HasSubstr("scale tiny"));
  EXPECT_THAT(v.reason, HasSubstr("-18.9"));
}

TEST_F(Collected, WhatIsMissingIsSaid) {
  auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  plan.runs[plan.find({"moco", ""})->runs[0]].blocked = "shapes are out of stock";
  std::vector<std::string> failures(plan.runs.size());
  failures[plan.find({"ebclr", ""})->runs[0]] = "[train.guard] the loss | is not finite";
  const auto r = collect(plan, failures);
  EXPECT_EQ(judge_claims(r)[0].ruling, Ruling::kUndecided);
  EXPECT_THAT(judge_claims(r)[0].reason, HasSubstr("missing"));
  const auto written = write_results(r, {{"command", "ebclr reproduce <mine>"}}, dir_ / "report");
  for (const auto& file : {written.html, written.markdown, written.csv}) {
    std::ifstream in(file);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    EXPECT_THAT(text, HasSubstr("is not finite")) << file;
    EXPECT_THAT(text, HasSubstr("out of stock")) << file;
  }
  std::ifstream in(written.html);
  const std::string html((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(html, HasSubstr("&lt;mine&gt;"));
  EXPECT_THAT(html, HasSubstr("methods &amp; sets"));
}

TEST_F(Collected, TablesHoldOursAndThePapers) {
  const auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50});
  fake_run(spec(plan, "moco", 0), {30, 35, 45});
  fake_run(spec(plan, "ebclr", 0), {30, 60, 70}, kEbclr);
  const auto r = results(plan);
  const auto md = to_markdown(r, {{"machine", "two cores"}});
  EXPECT_THAT(md, HasSubstr("# Table 0: methods & sets"));
  EXPECT_THAT(md, HasSubstr("50.0 ± 3.1 (60)"));
  EXPECT_THAT(md, HasSubstr("70.0 ± 2.8 (70)"));
  EXPECT_THAT(md, HasSubstr("ebclr beats simclr: **undecided at this scale**"));
  EXPECT_THAT(md, HasSubstr("- machine: two cores"));
  const auto csv = to_csv(r);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 9);  // a header, three points of three runs
  EXPECT_THAT(csv, HasSubstr("mine,tiny,ebclr,,0,knn,shapes,100,20.00,5800,0.700000,700,1000"));
  auto later = r;
  later.plan.first_seed = 3;
  EXPECT_THAT(to_csv(later), HasSubstr("mine,tiny,ebclr,,3,knn,shapes,100,"));
}

TEST_F(Collected, FindingsOfAnotherJudgingOrConfigurationDoNotCount) {
  const auto plan = make(1);
  const auto& s = spec(plan, "simclr", 0);
  fake_run(s, {30, 40, 50});
  EXPECT_TRUE(complete(s, read_findings(s)));
  auto other = s;
  other.judging.limit_test = 5;
  EXPECT_FALSE(complete(other, read_findings(other)));
  other = s;
  other.config.train.epochs += 1;
  EXPECT_FALSE(read_findings(other).trained);
  std::ofstream(eval::curve_file(s.folder, "knn", "paper")) << R"({"settings": 3, "points": [{"epo)";
  EXPECT_FALSE(complete(s, read_findings(s)));
}

}  // namespace
}  // namespace ebclr::study
