#include "study/perform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "core/file_lock.h"
#include "run/run.h"
#include "study/workers.h"
#include "temp_dir.h"

namespace ebclr::study {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kTinyStudy = R"(
title: two methods
judges: [knn, linear]
rows: {axis: method, key: method.name, values: [simclr, ebclr]}
fixed:
  data.source: shapes
  data.limit: 60
  encoder.width: 8
  head.out: 16
  buffer.size: 60
  sampler.steps: 2
  train.batch_size: 16
  train.epochs: 2
  checkpoint.keep_every: 1
)";

class Performed : public ::testing::Test {
 protected:
  Performed() {
    Scales scales;
    scales.names = {"tiny"};
    Judging judging;
    judging.probe_epochs = 3;
    judging.probe_rates = 2;
    judging.limit_test = 50;
    scales.judging = {judging};
    plan_ = make_plan(parse_study("mine", kTinyStudy, "mine"), "tiny", scales, 1, {}, dir_.path(), "");
  }
  bool go(const RunSpec& spec, const Report& report = {}) {
    return perform(spec, {}, stop_, report) == Outcome::kDone;
  }
  testing::TempDir dir_;
  Plan plan_;
  std::atomic<bool> stop_ = false;
};

TEST_F(Performed, TrainsJudgesAndLeavesFindings) {
  const auto& spec = plan_.runs[1];
  double last = 0;
  ASSERT_TRUE(go(spec, [&](double units, const std::string&) {
    EXPECT_GE(units, last);
    last = units;
  }));
  const auto f = read_findings(spec);
  ASSERT_TRUE(complete(spec, f));
  EXPECT_GT(last, spec.forward_units);
  EXPECT_DOUBLE_EQ(f.forward_units, spec.forward_units);
  const auto& curve = f.curves.at(curve_name("knn", "shapes"));
  ASSERT_EQ(curve.size(), 3u);  // untrained, epochs 1 and 2
  EXPECT_EQ(curve[0].epoch, 0);
  EXPECT_EQ(curve[2].epoch, 2);
  EXPECT_EQ(curve[2].total, 50);
  EXPECT_GT(curve[2].forward_units, curve[1].forward_units);
  EXPECT_EQ(f.curves.at(curve_name("linear", "shapes")).size(), 3u);

  // A second time there is nothing to do; a lost finding is made again, and comes out the same.
  const auto weights = fs::last_write_time(run::RunFolder{spec.folder}.summary());
  fs::remove(spec.folder / "eval" / "curve_knn_paper.json");
  ASSERT_TRUE(go(spec));
  EXPECT_EQ(fs::last_write_time(run::RunFolder{spec.folder}.summary()), weights);
  const auto again = read_findings(spec).curves.at(curve_name("knn", "shapes"));
  for (size_t i = 0; i < curve.size(); ++i) EXPECT_EQ(again[i].correct, curve[i].correct);
}

TEST_F(Performed, FindingsAloneAreEnoughUntilMoreIsAsked) {
  const auto& spec = plan_.runs[0];
  ASSERT_TRUE(go(spec));
  const run::RunFolder folder{spec.folder};
  fs::remove_all(folder.checkpoints());
  fs::remove(folder.metrics());
  const auto knn = read_findings(spec).curves.at(curve_name("knn", "shapes"));
  ASSERT_TRUE(go(spec));
  EXPECT_FALSE(fs::exists(folder.checkpoints())) << "nothing was missing, nothing is to be trained";
  // A lost finding needs the weights: the same run is trained again and gives the same.
  fs::remove(spec.folder / "eval" / "curve_knn_paper.json");
  ASSERT_TRUE(go(spec));
  EXPECT_TRUE(fs::exists(folder.checkpoints()));
  const auto again = read_findings(spec).curves.at(curve_name("knn", "shapes"));
  ASSERT_EQ(again.size(), knn.size());
  for (size_t i = 0; i < knn.size(); ++i) EXPECT_EQ(again[i].correct, knn[i].correct);
}

TEST_F(Performed, WhatWasSaidOfOtherWeightsGoesWhenThereAreNewOnesNotBefore) {
  const auto& spec = plan_.runs[0];
  ASSERT_TRUE(go(spec));
  const auto knn = spec.folder / "eval/curve_knn_paper.json",
             linear = spec.folder / "eval/curve_linear_honest.json";
  ASSERT_TRUE(fs::exists(linear));
  fs::remove_all(run::RunFolder{spec.folder}.checkpoints());
  fs::remove(run::RunFolder{spec.folder}.metrics());
  fs::remove(knn);
  const auto old = fs::last_write_time(linear);
  int steps = 0;
  ASSERT_FALSE(go(spec, [&](double, const std::string&) { stop_ = ++steps == 3; }));
  EXPECT_EQ(fs::last_write_time(linear), old) << "an interruption loses nothing";
  stop_ = false;
  ASSERT_TRUE(go(spec));
  EXPECT_TRUE(fs::exists(knn));
  EXPECT_NE(fs::last_write_time(linear), old) << "judged again, although nobody had missed it";
}

TEST_F(Performed, StopsAndGoesOnToTheSameResult) {
  const auto& spec = plan_.runs[0];
  int steps = 0;
  ASSERT_FALSE(go(spec, [&](double, const std::string&) { stop_ = ++steps == 3; }));
  EXPECT_FALSE(read_findings(spec).trained);
  stop_ = false;
  ASSERT_TRUE(go(spec));
  auto whole = spec;
  whole.folder = dir_ / "whole";
  ASSERT_TRUE(go(whole));
  const auto a = read_findings(spec).curves.at(curve_name("linear", "shapes")),
             b = read_findings(whole).curves.at(curve_name("linear", "shapes"));
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].correct, b[i].correct) << i;
}

TEST_F(Performed, TwoStudiesAtOneRunDoNotDisturbEachOther) {
  // The second found a folder without a checkpoint, took it for a dead one and removed it under the first.
  const auto& spec = plan_.runs[0];
  std::atomic<int> done{0}, waited{0};
  const auto work = [&] {
    const bool ok = go(spec, [&](double, const std::string& doing) {
      if (doing.starts_with("waiting")) ++waited;
    });
    done += ok;
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
  EXPECT_EQ(done, 2);
  EXPECT_GT(waited, 0) << "the second waits for the first";
  const auto f = read_findings(spec);
  EXPECT_TRUE(complete(spec, f));
  EXPECT_EQ(f.sessions.size(), 1u) << "it was trained once";
}

TEST_F(Performed, WhatTrainedItIsRecorded) {
  const auto& spec = plan_.runs[0];
  int steps = 0;
  ASSERT_FALSE(go(spec, [&](double, const std::string&) { stop_ = ++steps == 3; }));
  stop_ = false;
  ASSERT_TRUE(go(spec));
  const auto sessions = read_findings(spec).sessions;
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[0].from_step, 0);
  EXPECT_GT(sessions[1].from_step, 0);
  EXPECT_EQ(sessions[0].version, run::this_version());
  EXPECT_EQ(sessions[0].code, run::this_code());
  EXPECT_GT(sessions[0].threads, 0);
  EXPECT_FALSE(sessions[0].engine.empty());
}

TEST_F(Performed, AFolderKilledBeforeItsFirstCheckpointIsBegunAnew) {
  const auto& spec = plan_.runs[0];
  fs::create_directories(spec.folder / "checkpoints");
  std::ofstream(spec.folder / "config.yaml") << run::to_yaml(spec.config);
  ASSERT_TRUE(go(spec));
  EXPECT_TRUE(complete(spec, read_findings(spec)));
}

TEST_F(Performed, SpecsSurviveTheWayToAWorker) {
  const auto& spec = plan_.runs[1];
  const auto copy = spec_from_json(nlohmann::json::parse(to_json(spec).dump()));
  EXPECT_EQ(digest(copy.config), digest(spec.config));
  EXPECT_EQ(copy.folder, spec.folder);
  EXPECT_EQ(copy.judges, spec.judges);
  EXPECT_EQ(copy.sets, spec.sets);
  EXPECT_EQ(copy.judging, spec.judging);
}

TEST_F(Performed, AUnitOfWorkTakesTime) {
  const double seconds = measure_unit(plan_.runs[1].config, {});
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 1);
}

TEST_F(Performed, UnitsAreThoseOfTheSetsOwnShape) {
  std::set<std::string> kinds;
  for (const char* source : {"shapes", "shapes28", "shapes-gray", "mnist"}) {
    auto config = plan_.runs[1].config;
    config.data.source = source;
    kinds.insert(unit_kind(config));
  }
  EXPECT_EQ(kinds.size(), 4u);
}

// Its labels say how many outputs it has, whatever its configuration said before.
TEST_F(Performed, ARunThatLearnsFromLabelsIsComplete) {
  auto spec = plan_.runs[0];
  spec.config = run::resolve({{"study", run::method_preset("supervised")},
                              {"test",
                               {{"method.name", "supervised"},
                                {"data.source", "shapes"},
                                {"data.limit", "60"},
                                {"encoder.width", "8"},
                                {"train.batch_size", "16"},
                                {"train.epochs", "1"}}}});
  spec.folder = dir_ / "labelled";
  EXPECT_GT(measure_unit(spec.config, {}), 0);
  ASSERT_TRUE(go(spec));
  EXPECT_NE(run::Run::open(spec.folder).config().method.head.out, spec.config.method.head.out);
  EXPECT_TRUE(complete(spec, read_findings(spec)));
}

// Workers are any program that takes a file; here the shell plays it.
WorkerOptions shell(const fs::path& scratch, const std::string& script) {
  WorkerOptions o;
  o.scratch = scratch;
  o.command = [script](const fs::path& spec) {
    return std::vector<std::string>{"/bin/sh", "-c", script, spec.string()};
  };
  return o;
}

TEST_F(Performed, AFailedWorkerIsReportedAndTheOthersGoOn) {
  auto o = shell(dir_ / "workers",
                 "case $0 in *simclr*) echo noise >&2; echo 'ebclr: [train] it broke' >&2; exit 1;; "
                 "*) echo '{\"units\": 7, \"doing\": \"epoch 1/2\"}'; exit 0;; esac");
  double seen = 0;
  o.watch = [&](const std::vector<RunStatus>& s) { seen = std::max(seen, s[1].units); };
  const auto status = run_plan(plan_, o, stop_);
  EXPECT_EQ(status[0].state, RunState::kFailed);
  EXPECT_EQ(status[0].failure, "[train] it broke");
  EXPECT_EQ(status[1].state, RunState::kDone);
  EXPECT_GE(seen, 7);
  EXPECT_EQ(remembered_failures(plan_)[0], "[train] it broke");
  EXPECT_EQ(remembered_failures(plan_)[1], "");
  // The next try forgets it.
  run_plan(plan_, shell(dir_ / "workers", "exit 0"), stop_);
  EXPECT_EQ(remembered_failures(plan_)[0], "");
}

TEST_F(Performed, AKilledWorkerIsAFailureToo) {
  const auto status = run_plan(plan_, shell(dir_ / "workers", "kill -9 $$"), stop_);
  EXPECT_EQ(status[0].state, RunState::kFailed);
  EXPECT_THAT(status[0].failure, HasSubstr("signal 9"));
}

TEST_F(Performed, AFailureThatCannotBeWrittenDownTakesNothingWithIt) {
  // A folder where the failure belongs: the old one cannot be removed, and the new one not be written.
  fs::create_directories(plan_.runs[0].folder.string() + ".failed/full");
  const auto status = run_plan(
      plan_,
      shell(dir_ / "workers", "case $0 in *simclr*) echo 'ebclr: [train] it broke' >&2; exit 1;; esac"),
      stop_);
  EXPECT_EQ(status[0].state, RunState::kFailed);
  EXPECT_EQ(status[0].failure, "[train] it broke");
  EXPECT_EQ(status[1].state, RunState::kDone);
}

TEST_F(Performed, ARunWhoseLockCannotBeAskedFailsAlone) {
  fs::create_directories(plan_.runs[0].folder.string() + ".lock");
  const auto status = run_plan(plan_, shell(dir_ / "workers", "exit 0"), stop_);
  EXPECT_EQ(status[0].state, RunState::kFailed);
  EXPECT_THAT(status[0].failure, HasSubstr("cannot be written"));
  EXPECT_EQ(remembered_failures(plan_)[0], status[0].failure);
  EXPECT_EQ(status[1].state, RunState::kDone);
}

TEST_F(Performed, AWorkerThatCannotBeStartedIsAFailure) {
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{});
  };
  auto o = shell(dir_ / "workers", "exit 0");
  o.command = [command = o.command](const fs::path& spec) {
    // Its log cannot be opened.
    if (spec.string().find("simclr") != std::string::npos)
      fs::create_directories(fs::path(spec).replace_extension(".log"));
    return command(spec);
  };
  const auto before = open_files();
  const auto status = run_plan(plan_, o, stop_);
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(status[0].state, RunState::kFailed);
  EXPECT_THAT(status[0].failure, HasSubstr(".log: cannot be written"));
  EXPECT_EQ(remembered_failures(plan_)[0], status[0].failure);
  EXPECT_EQ(status[1].state, RunState::kDone);
  for (const auto& left : fs::directory_iterator(dir_ / "workers"))
    EXPECT_NE(left.path().extension(), ".json") << left.path();
}

TEST(ProgressLine, NamesNeedNotBeText) {
  const auto line = progress_line(7, "judging on caf\xe9");
  const auto j = nlohmann::json::parse(line);
  EXPECT_EQ(j["units"], 7);
  EXPECT_EQ(j["doing"], "judging on caf\xef\xbf\xbd");
}

TEST_F(Performed, StoppingAsksTheWorkersToSave) {
  auto o =
      shell(dir_ / "workers", "trap 'exit 130' TERM; echo '{\"units\": 1}'; while :; do sleep 0.05; done");
  o.jobs = 2;
  o.watch = [&](const std::vector<RunStatus>& s) {
    if (s[0].units > 0 && s[1].units > 0) stop_ = true;
  };
  const auto status = run_plan(plan_, o, stop_);
  EXPECT_EQ(status[0].state, RunState::kStopped);
  EXPECT_EQ(status[1].state, RunState::kStopped);
  EXPECT_EQ(remembered_failures(plan_)[0], "");
}

/// Somebody else at a run, for as long as it lives.
class Owner {
 public:
  explicit Owner(const RunSpec& spec) {
    fs::create_directories(spec.folder.parent_path());
    lock_ = core::FileLock::try_take(spec.folder.string() + ".lock", "test");
  }
  void dies() { lock_.reset(); }

 private:
  std::optional<core::FileLock> lock_;
};

TEST_F(Performed, ARunInOtherHandsIsLeftAloneAndTakenOverWhenTheyDie) {
  Owner other(plan_.runs[0]);
  EXPECT_TRUE(is_taken(plan_.runs[0]));
  EXPECT_FALSE(is_taken(plan_.runs[1]));
  EXPECT_EQ(perform(plan_.runs[0], {}, stop_, {}, /*wait=*/false), Outcome::kElsewhere);
  auto o = shell(dir_ / "workers", "echo $0 >>" + (dir_ / "order").string());
  bool seen = false;
  o.watch = [&](const std::vector<RunStatus>& s) {
    if (s[1].state != RunState::kDone) return;
    seen = seen || s[0].state == RunState::kElsewhere;
    if (seen) other.dies();
  };
  const auto status = run_plan(plan_, o, stop_);
  EXPECT_TRUE(seen) << "the other run was done first";
  EXPECT_EQ(status[0].state, RunState::kDone);
  EXPECT_FALSE(status[0].foreign);
  std::ifstream order(dir_ / "order");
  std::string first, second;
  ASSERT_TRUE(std::getline(order, first) && std::getline(order, second));
  EXPECT_THAT(first, HasSubstr(plan_.runs[1].folder.filename().string()));
  EXPECT_THAT(second, HasSubstr(plan_.runs[0].folder.filename().string()));
}

TEST_F(Performed, AWorkerThatComesTooLateGoesBackInLine) {
  // Both saw the run free; the other's worker was quicker.
  const auto mark = (dir_ / "came").string();
  const auto status = run_plan(
      plan_, shell(dir_ / "workers", "[ -e " + mark + " ] || { touch " + mark + "; exit 75; }"), stop_);
  EXPECT_EQ(status[0].state, RunState::kDone);
  EXPECT_EQ(status[1].state, RunState::kDone);
  EXPECT_EQ(remembered_failures(plan_)[0], "");
}

TEST_F(Performed, AFailureInOtherHandsIsNotTriedAgain) {
  Owner other(plan_.runs[0]);
  auto o = shell(dir_ / "workers", "case $0 in *simclr*) echo tried >&2; exit 1;; esac");
  o.watch = [&](const std::vector<RunStatus>& s) {
    if (s[0].state != RunState::kElsewhere) return;
    std::ofstream(plan_.runs[0].folder.string() + ".failed") << "it broke there\n";
    other.dies();
  };
  const auto status = run_plan(plan_, o, stop_);
  EXPECT_EQ(status[0].state, RunState::kFailed);
  EXPECT_TRUE(status[0].foreign);
  EXPECT_EQ(status[0].failure, "it broke there");
}

TEST_F(Performed, BlockedRunsAreNotStarted) {
  mark_missing(plan_, {{"shapes", "no shapes today"}});
  const auto status = run_plan(plan_, shell(dir_ / "workers", "exit 1"), stop_);
  EXPECT_EQ(status[0].state, RunState::kBlocked);
  EXPECT_EQ(status[1].state, RunState::kBlocked);
}

}  // namespace
}  // namespace ebclr::study
