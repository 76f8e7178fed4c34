#include "study/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "run/run.h"
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

// A run folder as perform() leaves it, with accuracies in percent at epochs 0, 1, 2, ...
void fake_run(const RunSpec& spec, const std::vector<double>& accuracy, double units_per_epoch) {
  std::filesystem::create_directories(spec.folder / "study");
  auto config = spec.config;
  std::ofstream(spec.folder / "config.yaml") << run::to_yaml(config);
  const auto epochs = static_cast<double>(accuracy.size() - 1);
  std::ofstream(spec.folder / "summary.json") << nlohmann::json{{"finished", true},
                                                                {"epochs", spec.config.train.epochs},
                                                                {"steps", 10},
                                                                {"seconds", 10 * epochs},
                                                                {"forward_units", units_per_epoch * epochs}};
  nlohmann::json points;
  for (size_t e = 0; e < accuracy.size(); ++e)
    points.push_back({{"epoch", e},
                      {"seconds", 10.0 * static_cast<double>(e)},
                      {"forward_units", units_per_epoch * static_cast<double>(e)},
                      {"accuracy", accuracy[e] / 100},
                      {"correct", static_cast<int64_t>(accuracy[e] * 10)},
                      {"total", 1000}});
  std::ofstream(spec.folder / "study" / "knn_on_shapes.json")
      << nlohmann::json{{"judging", "knn paper, 0 labels, 0 test images"}, {"points", points}};
}

class Collected : public ::testing::Test {
 protected:
  Plan make(int seeds) {
    Scales scales;
    scales.names = {"tiny"};
    scales.judging = {Judging{}};
    return make_plan(parse_study("mine", kJudgedStudy, "mine"), "tiny", scales, seeds, {}, dir_.path(), "");
  }
  Results results(const Plan& plan) { return collect(plan, std::vector<std::string>(plan.runs.size())); }
  const RunSpec& spec(const Plan& plan, const std::string& row, size_t seed) {
    return plan.runs[plan.find({row, ""})->runs[seed]];
  }
  testing::TempDir dir_;
};

TEST(StudentT, MatchesTheTable) {
  EXPECT_DOUBLE_EQ(student_t(1), 12.706);
  EXPECT_DOUBLE_EQ(student_t(10), 2.228);
  EXPECT_NEAR(student_t(60), 2.000, 1e-3);
  EXPECT_NEAR(student_t(1000), 1.962, 1e-3);
}

TEST_F(Collected, MeansIntervalsAndVerdicts) {
  const auto plan = make(2);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50}, 600);
  fake_run(spec(plan, "simclr", 1), {30, 40, 52}, 600);
  fake_run(spec(plan, "moco", 0), {30, 50, 71}, 600);
  fake_run(spec(plan, "moco", 1), {30, 50, 69}, 600);
  fake_run(spec(plan, "ebclr", 0), {30, 60, 70}, 2900);
  fake_run(spec(plan, "ebclr", 1), {30, 60, 72}, 2900);
  const auto r = results(plan);
  const auto& simclr = r.cells.at({"simclr", ""});
  EXPECT_DOUBLE_EQ(simclr.score.at("knn").mean, 51);
  EXPECT_DOUBLE_EQ(simclr.untrained.at("knn").mean, 30);
  // Pooled over three cells with squares 2, 2 and 2: variance 2, three degrees of freedom.
  EXPECT_EQ(r.degrees.at("knn"), 3);
  EXPECT_NEAR(simclr.score.at("knn").high - 51, 3.182 * std::sqrt(2.0 / 2), 1e-9);
  const auto d = difference(r, "knn", r.cells.at({"ebclr", ""}).score.at("knn"), simclr.score.at("knn"));
  EXPECT_DOUBLE_EQ(d.value, 20);
  EXPECT_NEAR(d.half, 3.182 * std::sqrt(2.0), 1e-9);
  // Seed by seed: means of the seeds 191/3 and 193/3; left over are +-2/3 twice and +-4/3, squares 16/3 in
  // all, with (3 - 1)(2 - 1) degrees of freedom.
  const auto paired =
      paired_difference(r, "knn", r.cells.at({"ebclr", ""}).score.at("knn"), simclr.score.at("knn"));
  EXPECT_EQ(r.paired.at("knn").degrees, 2);
  EXPECT_NEAR(r.paired.at("knn").variance, 16.0 / 3 / 2, 1e-9);
  EXPECT_DOUBLE_EQ(paired.value, 20);
  EXPECT_NEAR(paired.half, 4.303 * std::sqrt(16.0 / 3 / 2), 1e-9);
  // EBCLR passes 50 and 52 at its first epoch: half of SimCLR's two epochs, 2900 of its 1200 units.
  const auto& e = simclr.efficiency.at("knn");
  EXPECT_DOUBLE_EQ(*e.epochs, 0.5);
  EXPECT_DOUBLE_EQ(*e.seconds, 0.5);
  EXPECT_DOUBLE_EQ(*e.forward_units, 2900.0 / 1200);
  const auto v = judge_claims(r);
  EXPECT_EQ(v[0].ruling, Ruling::kSupported) << v[0].reason;
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided) << v[1].reason;  // 71 against 70, half-width 7.0
  EXPECT_EQ(v[2].ruling, Ruling::kSupported) << v[2].reason;
  EXPECT_EQ(v[3].ruling, Ruling::kSupported) << v[3].reason;
}

TEST_F(Collected, ALoserIsNotSupported) {
  const auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 60, 80}, 600);
  fake_run(spec(plan, "moco", 0), {30, 31, 32}, 600);
  fake_run(spec(plan, "ebclr", 0), {62, 60, 61}, 2900);
  const auto r = results(plan);
  // One seed: the interval is over the 1,000 test images.
  const auto& e = r.cells.at({"simclr", ""}).score.at("knn");
  EXPECT_FALSE(e.over_seeds);
  EXPECT_NEAR(e.low, 77.4, 0.2);
  const auto v = judge_claims(r);
  EXPECT_EQ(v[0].ruling, Ruling::kNotSupported);
  EXPECT_THAT(v[0].reason, HasSubstr("-19.0"));
  // Better than MoCo, but EBCLR is below its own untrained encoder: that decides nothing.
  EXPECT_EQ(v[1].ruling, Ruling::kUndecided);
  EXPECT_THAT(v[1].reason, HasSubstr("untrained"));
  EXPECT_EQ(v[2].ruling, Ruling::kNotSupported);  // 80 and 32 are not within 40
  EXPECT_EQ(v[3].ruling, Ruling::kNotSupported);  // 80 was never reached
  EXPECT_FALSE(r.cells.at({"simclr", ""}).efficiency.at("knn").epochs);
}

TEST_F(Collected, AScaleThatDecidesNothingLeavesClaimsOpen) {
  auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 60, 80}, 600);
  fake_run(spec(plan, "ebclr", 0), {30, 60, 61}, 2900);
  EXPECT_EQ(judge_claims(results(plan))[0].ruling, Ruling::kNotSupported);
  plan.decides = false;
  const auto v = judge_claims(results(plan))[0];
  EXPECT_EQ(v.ruling, Ruling::kUndecided);
  EXPECT_THAT(v.reason, HasSubstr("scale tiny"));
  EXPECT_THAT(v.reason, HasSubstr("-19.0"));
}

TEST_F(Collected, WhatIsMissingIsSaid) {
  auto plan = make(1);
  fake_run(spec(plan, "simclr", 0), {30, 40, 50}, 600);
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
  fake_run(spec(plan, "simclr", 0), {30, 40, 50}, 600);
  fake_run(spec(plan, "moco", 0), {30, 35, 45}, 600);
  fake_run(spec(plan, "ebclr", 0), {30, 60, 70}, 2900);
  const auto r = results(plan);
  const auto md = to_markdown(r, {{"machine", "two cores"}});
  EXPECT_THAT(md, HasSubstr("# Table 0: methods & sets"));
  EXPECT_THAT(md, HasSubstr("50.0 ± 3.1 (60)"));
  EXPECT_THAT(md, HasSubstr("70.0 ± 2.8 (70)"));
  EXPECT_THAT(md, HasSubstr("ebclr beats simclr: **supported**"));
  EXPECT_THAT(md, HasSubstr("- machine: two cores"));
  const auto csv = to_csv(r);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 9);  // a header, three points of three runs
  EXPECT_THAT(csv, HasSubstr("mine,tiny,ebclr,,0,knn,shapes,2,20.00,5800,0.700000,700,1000"));
}

TEST_F(Collected, FindingsOfAnotherJudgingOrConfigurationDoNotCount) {
  const auto plan = make(1);
  const auto& s = spec(plan, "simclr", 0);
  fake_run(s, {30, 40, 50}, 600);
  EXPECT_TRUE(complete(s, read_findings(s)));
  auto other = s;
  other.judging.limit_test = 5;
  EXPECT_FALSE(complete(other, read_findings(other)));
  other = s;
  other.config.train.epochs += 1;
  EXPECT_FALSE(read_findings(other).trained);
  std::ofstream(s.folder / "study" / "knn_on_shapes.json") << R"({"judging": 3, "points": [{"epo)";
  EXPECT_FALSE(complete(s, read_findings(s)));
}

}  // namespace
}  // namespace ebclr::study
