#include "study/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "expect_error.h"
#include "study/study.h"

namespace ebclr::study {
namespace {

using ::testing::Contains;
using testing::expect_error;
using ::testing::HasSubstr;

Plan plan_of(const std::string& study, const std::string& scale, int seeds = 1,
             const std::string& only = "") {
  const auto s = load_study(study);
  Selection selection;
  if (!only.empty()) add_only(selection, only, s);
  return make_plan(s, scale, load_scales(), seeds, selection, "out", "");
}

run::Config config_of(const Plan& plan, const CellId& id) {
  return plan.runs.at(plan.find(id)->runs.at(0)).config;
}

constexpr const char* kMinimal = R"(
title: two rows
judges: [knn]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
fixed: {data.source: shapes}
)";

TEST(Studies, EveryShippedOneResolvesAtEveryScale) {
  const auto names = study_names();
  EXPECT_GE(names.size(), 15u);
  EXPECT_EQ(names.front(), "table1");
  for (const auto& name : names)
    for (const auto& scale : load_scales().names) {
      const auto plan = plan_of(name, scale, 2);
      EXPECT_EQ(plan.cells.size(), plan.study.rows.size() * plan.study.columns.size()) << name;
      for (const auto& r : plan.runs) {
        EXPECT_GT(r.forward_units, 0) << name << " " << r.title;
        EXPECT_FALSE(r.judges.empty()) << name << " " << r.title;
      }
    }
}

TEST(Studies, PaperScaleIsThePaper) {
  const auto t = plan_of("table1", "paper");
  const auto& ebclr = config_of(t, {"ebclr", "fmnist"});
  EXPECT_EQ(ebclr.train.batch_size, 128);
  EXPECT_EQ(ebclr.train.epochs, 100);
  EXPECT_DOUBLE_EQ(ebclr.effective_lr(), 2e-4);
  EXPECT_DOUBLE_EQ(ebclr.method.ebclr.buffer.rho, 0.6);
  EXPECT_EQ(ebclr.method.ebclr.buffer.size, 50000);
  EXPECT_EQ(ebclr.method.encoder.width, 64);
  EXPECT_EQ(ebclr.data.limit, 0);
  const auto& byol = config_of(t, {"byol", "cifar10"});
  EXPECT_EQ(byol.train.batch_size, 256);
  EXPECT_DOUBLE_EQ(byol.effective_lr(), 0.03);
  EXPECT_DOUBLE_EQ(byol.views.brightness, 0.8);
  const auto batch = plan_of("table3", "paper");
  EXPECT_EQ(config_of(batch, {"ebclr", "cifar10/16"}).train.batch_size, 16);
  EXPECT_DOUBLE_EQ(config_of(batch, {"ebclr", "cifar10/16"}).effective_lr(), 1e-4);
  const auto longer = plan_of("table1_200", "paper");
  EXPECT_EQ(config_of(longer, {"ebclr", "cifar10"}).train.epochs, 200);
  EXPECT_TRUE(config_of(longer, {"ebclr", "cifar10"}).method.ebclr.adaptive.on);
  const auto gamma = plan_of("gamma", "paper");
  EXPECT_DOUBLE_EQ(config_of(gamma, {"0.01", ""}).method.ebclr.objective.lambda, 1);
  EXPECT_DOUBLE_EQ(config_of(gamma, {"0.01", ""}).method.ebclr.objective.gamma, 0.01);
}

TEST(Studies, TheFrontierComparesEqualCosts) {
  // What a budget calls equal (budget.cpp).
  for (const auto& [scale, units] :
       {std::pair{"small", 174.0 * 4992}, {"medium", 114.0 * 9984}, {"paper", 2900.0 * 49920}}) {
    const auto p = plan_of("frontier", scale);
    ASSERT_EQ(p.runs.size(), p.study.rows.size() * 2);
    for (const auto& r : p.runs)
      if (r.config.data.source == "cifar10") {
        EXPECT_NEAR(r.forward_units / units, 1, 0.02) << scale << " " << r.title;
      }
  }
  for (const char* judge : {"strangers-energy", "strangers-combined"}) {
    EXPECT_TRUE(is_measured_once(judge));
    EXPECT_FALSE(is_distance(judge)) << "more is better";
  }
}

TEST(Studies, FiguresOfThePaperStandWhereTheyBelong) {
  const auto t = load_study("table1");
  EXPECT_DOUBLE_EQ(t.paper.at("linear").at({"moco", "cifar10"}), 64.0);
  EXPECT_DOUBLE_EQ(t.paper.at("efficiency").at({"byol", "mnist"}), 0.4);
  const auto batch = load_study("table3");
  EXPECT_DOUBLE_EQ(batch.paper.at("linear").at({"ebclr", "cifar10/64"}), 78.2);
  const auto knn = load_study("knn1");
  EXPECT_EQ(knn.paper.at("efficiency").count({"byol", "mnist"}), 0u);  // the paper has a dash there
}

TEST(Plans, EqualConfigurationsAreOneRunAcrossStudies) {
  std::set<std::string> table1;
  for (const auto& r : plan_of("table1", "small", 2).runs) table1.insert(r.folder.string());
  EXPECT_EQ(table1.size(), 48u);
  const auto shared = [&](const std::string& study, const CellId& id) {
    const auto p = plan_of(study, "small");
    return table1.count(p.runs[p.find(id)->runs[0]].folder.string()) == 1;
  };
  EXPECT_TRUE(shared("table2", {"ebclr", "mnist-fmnist"}));
  EXPECT_TRUE(shared("knn1", {"byol", "cifar100"}));
  EXPECT_TRUE(shared("lambda", {"0.1", ""}));
  EXPECT_TRUE(shared("rho", {"0.2", ""}));
  EXPECT_TRUE(shared("proposal", {"data", ""}));
  EXPECT_TRUE(shared("msgld", {"msgld", ""}));
  EXPECT_TRUE(shared("approx", {"approx1", ""}));
  EXPECT_TRUE(shared("table3", {"simclr", "fmnist/64"}));
  EXPECT_TRUE(shared("scope", {"moco", "image"}));
  EXPECT_FALSE(shared("rho", {"1", ""}));
  EXPECT_FALSE(shared("scope", {"moco", "batch"}));
}

TEST(Plans, SeedsAreDifferentRunsOfOneCell) {
  const auto p = plan_of("rho", "small", 3);
  ASSERT_EQ(p.cells.size(), 3u);
  ASSERT_EQ(p.cells[0].runs.size(), 3u);
  EXPECT_EQ(p.runs.size(), 9u);
  EXPECT_EQ(p.runs[p.cells[1].runs[2]].config.train.seed, 2u);
}

TEST(Plans, FreshSeedsCountFromTheFirst) {
  const auto s = load_study("rho");
  const auto plan = make_plan(s, "tiny", load_scales(), 3, {}, "out", "", 3);
  std::set<uint64_t> seeds;
  for (const auto& r : plan.runs) seeds.insert(r.config.train.seed);
  EXPECT_EQ(seeds, (std::set<uint64_t>{3, 4, 5}));
  EXPECT_THAT(plan.runs[0].title, HasSubstr(", seed 3"));
  EXPECT_EQ(describe_seeds(plan), "3 seeds (3 to 5)");
  EXPECT_EQ(describe_seeds(make_plan(s, "tiny", load_scales(), 3, {}, "out", "")), "3 seeds");
  EXPECT_EQ(describe_seeds(make_plan(s, "tiny", load_scales(), 1, {}, "out", "", 7)), "one seed (7)");
  // The same runs as those that a larger number of seeds would add.
  const auto all = make_plan(s, "tiny", load_scales(), 6, {}, "out", "");
  EXPECT_EQ(plan.runs[0].folder, all.runs[3].folder);
}

TEST(Plans, TransferIsJudgedOnTheOtherSet) {
  const auto p = plan_of("table2", "tiny");
  const auto* cell = p.find({"simclr", "fmnist-mnist"});
  EXPECT_EQ(cell->on, "mnist");
  EXPECT_EQ(p.runs[cell->runs[0]].config.data.source, "fmnist");
  EXPECT_THAT(p.runs[cell->runs[0]].sets, Contains("mnist"));
}

TEST(Plans, OnlySelectsAlongAnyAxisOfAProduct) {
  EXPECT_EQ(plan_of("table1", "tiny", 1, "data=fmnist,cifar10").cells.size(), 12u);
  EXPECT_EQ(plan_of("table3", "tiny", 1, "batch=16").cells.size(), 8u);
  EXPECT_EQ(plan_of("table3", "tiny", 1, "method=ebclr").cells.size(), 12u);
  expect_error(
      core::ExitCode::kUsage, [] { plan_of("table1", "tiny", 1, "batch=16"); }, "axis", "table1");
  expect_error(
      core::ExitCode::kUsage, [] { plan_of("table1", "tiny", 1, "data=imagenet"); }, "imagenet", "fmnist");
}

TEST(Plans, CostsAreThoseOfTheMethods) {
  const auto p = plan_of("table1", "small");
  const auto units = [&](const char* row) { return p.runs[p.find({row, "cifar10"})->runs[0]].forward_units; };
  // 4,000 images are 62 batches of 64; EBCLR has 5 epochs, the rivals 10.
  EXPECT_DOUBLE_EQ(units("ebclr"), 29.0 * 62 * 64 * 5);
  EXPECT_DOUBLE_EQ(units("simclr"), 6.0 * 62 * 64 * 10);
  EXPECT_DOUBLE_EQ(units("byol"), 8.0 * 62 * 64 * 10);
  // Without its sampler EBCLR is a rival, with a rival's cost and epochs.
  EXPECT_DOUBLE_EQ(units("ebclr-lambda0"), 6.0 * 62 * 64 * 10);
  const auto lambda = plan_of("lambda", "small");
  EXPECT_DOUBLE_EQ(lambda.runs[lambda.find({"0", ""})->runs[0]].forward_units, 6.0 * 62 * 64 * 5);
}

TEST(Studies, RivalsAreAsTheirPapersSay) {
  const auto p = plan_of("table1", "small");
  const auto of = [&](const char* row) { return p.runs[p.find({row, "cifar10"})->runs[0]].config; };
  EXPECT_TRUE(of("moco").method.moco.symmetric);
  EXPECT_DOUBLE_EQ(of("simsiam").optimizer.weight_decay, 5e-4);
  for (const char* judged : {"knn1", "knn2", "knn3"})
    EXPECT_THAT(load_study(judged).judges, ::testing::ElementsAre("knn", "knn-dino")) << judged;
  // The encoder without the sampler is a row wherever the rivals are, and one run.
  for (const char* study : {"knn1", "table2", "knn2"}) {
    const auto other = plan_of(study, "small");
    const auto column = other.study.columns.front().id;
    EXPECT_EQ(other.runs[other.find({"ebclr-lambda0", column})->runs[0]].folder,
              p.runs[p.find({"ebclr-lambda0", "mnist"})->runs[0]].folder)
        << study;
  }
}

TEST(Plans, MissingSetsBlockTheirRunsOnly) {
  auto p = plan_of("table1", "tiny");
  mark_missing(p, {{"cifar100", "cifar100 is not here"}});
  for (const auto& r : p.runs) EXPECT_EQ(!r.blocked.empty(), r.config.data.source == "cifar100");
  auto t = plan_of("table2", "tiny");
  mark_missing(t, {{"cifar100", "cifar100 is not here"}});
  EXPECT_FALSE(t.runs[t.find({"ebclr", "cifar10-cifar100"})->runs[0]].blocked.empty());
}

TEST(Plans, WhereTheDataLieDoesNotChangeARun) {
  const auto s = load_study("rho");
  const auto here = make_plan(s, "tiny", load_scales(), 1, {}, "out", "/a");
  const auto there = make_plan(s, "tiny", load_scales(), 1, {}, "out", "/b");
  EXPECT_EQ(here.runs[0].folder, there.runs[0].folder);
}

TEST(StudyFiles, MistakesAreNamedWithTheirLine) {
  const auto bad = [](const std::string& yaml, const auto&... fragments) {
    expect_error(
        core::ExitCode::kUsage, [&] { parse_study("mine", yaml, "mine.yaml"); }, "mine.yaml", fragments...);
  };
  const std::string ok = kMinimal;
  EXPECT_EQ(parse_study("mine", ok, "mine.yaml").rows.size(), 2u);
  bad(ok + "fixde: {}\n", "line 6", "fixde", "fixed");
  bad("title: x\njudges: [knn]\nrows: {axis: a, key: method.lamda, values: [1]}\n", "method.lamda",
      "method.lambda");
  bad("title: x\njudges: [psychic]\nrows: {axis: a, key: method.name, values: [ebclr]}\n", "psychic");
  bad("title: x\njudges: [knn]\n", "rows is missing");
  bad("title: x\njudges: [knn]\nrows: {axis: a, key: method.name, values: [ebclr, ebclr]}\n", "twice");
  bad(ok + "claims:\n  - {says: y, kind: better, rows: ebclr, than: byol}\n", "byol", "does not exist");
  bad(ok + "claims:\n  - {says: y, kind: efficiency, rows: simclr, below: 0.5}\n", "reference");
  bad(ok + "paper: {knn: {simclr: [1, 2]}}\n", "1 figures");
  bad("title: [\n", "not valid YAML");
}

TEST(StudyFiles, UnknownNamesGetTheNearest) {
  expect_error(
      core::ExitCode::kUsage, [] { load_study("tabel1"); }, "tabel1", "table1");
  expect_error(
      core::ExitCode::kUsage, [] { load_scales().index("middling"); }, "tiny, small, medium, paper");
}

TEST(Rules, LaterOnesWinAndAxesWinOverAll) {
  const auto scales = parse_scales(R"(
scales:
  a: {about: one}
  b: {about: two, seeds: 3}
rules:
  - {when: {scale: a}, set: {train.epochs: 1, encoder.width: 8}}
  - {when: {scale: a, method.name: simclr}, set: {train.epochs: 2}}
  - {when: {scale: a, encoder.width: 8}, set: {head.out: 7}}
  - {when: {scale: b}, set: {train.epochs: 9}}
  - {when: {scale: a, study: other}, set: {train.epochs: 50}}
  - {when: {scale: a}, set: {data.source: mnist}}
)",
                                   "scales");
  const auto study = parse_study("mine", kMinimal, "mine.yaml");
  const auto value = [&](size_t row, const std::string& scale, const std::string& key) {
    std::string out = "unset";
    for (const auto& [k, v] : settings_of(study, study.rows[row], study.columns[0], scale, scales))
      if (k == key) out = v;
    return out;
  };
  EXPECT_EQ(value(0, "a", "train.epochs"), "2");
  EXPECT_EQ(value(1, "a", "train.epochs"), "1");
  EXPECT_EQ(value(1, "a", "head.out"), "7");  // sees what an earlier rule set
  EXPECT_EQ(value(1, "b", "train.epochs"), "9");
  EXPECT_EQ(value(1, "a", "data.source"), "shapes");
  EXPECT_EQ(scales.seeds[1], 3);
  EXPECT_TRUE(scales.decides[0]);
  EXPECT_FALSE(load_scales().decides[load_scales().index("tiny")]);
}

TEST(Rules, AScaleLikeAnotherTakesItsRulesAndJudging) {
  const auto scales = parse_scales(R"(
scales:
  a: {about: one, probe_epochs: 40, probe_rates: 3}
  b: {about: two, like: a, probe_rates: 5}
  c: {about: three, like: b}
rules:
  - {when: {scale: b}, set: {train.epochs: 3}}
  - {when: {scale: a}, set: {encoder.width: 8}}
  - {when: {scale: b}, set: {encoder.width: 16}}
)",
                                   "scales");
  const auto study = parse_study("mine", kMinimal, "mine.yaml");
  const auto settings = [&](const std::string& scale) {
    const auto list = settings_of(study, study.rows[1], study.columns[0], scale, scales);
    return std::map<std::string, std::string>(list.rbegin(), list.rend());  // a later one wins
  };
  EXPECT_EQ(settings("a").count("train.epochs"), 0u);
  EXPECT_EQ(settings("a").at("encoder.width"), "8");
  EXPECT_EQ(settings("b").at("encoder.width"), "16");
  EXPECT_EQ(settings("c"), settings("b"));
  EXPECT_EQ(scales.judging[2].probe_epochs, 40);
  EXPECT_EQ(scales.judging[2].probe_rates, 5);
  expect_error(
      core::ExitCode::kUsage,
      [] { parse_scales("scales: {a: {about: one, like: b}, b: {about: two}}", "s"); }, "no scale above");
}

}  // namespace
}  // namespace ebclr::study
