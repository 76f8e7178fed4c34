#include "watch/run_view.h"

#include <gmock/gmock.h>

#include "scratch_run.h"

namespace ebclr::watch {
namespace {

namespace fs = std::filesystem;
using ebclr::testing::append;
using ebclr::testing::begin_run;
using ebclr::testing::HeldFolder;
using ebclr::testing::line;
using ebclr::testing::TempDir;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Everything that there is to read.
void look(RunView& view) {
  do view.refresh(1 << 20, held_locks());
  while (view.behind());
}

json curves(const RunView& view, int64_t generation = 0, int64_t per = 0, int64_t have = 0) {
  return json::parse(view.curves({generation, per, have}));
}

struct Watched : ::testing::Test {
  TempDir dir;
  fs::path folder = begin_run(dir.path() / "run");
  RunView view{0, "run", folder};
  void SetUp() override { view.want_curves(); }
  void write(const std::string& text) { append(folder / "metrics.jsonl", text); }
};

TEST_F(Watched, WaitsForTheRestOfALine) {
  const auto second = line(2, 0.5);
  write(line(1, 1) + second.substr(0, 20));
  look(view);
  EXPECT_THAT(curves(view)["x"]["step"], ElementsAre(1));
  EXPECT_EQ(view.status()["damaged"], 0);
  write(second.substr(20));
  look(view);
  EXPECT_THAT(curves(view)["x"]["step"], ElementsAre(1, 2));
  EXPECT_THAT(curves(view)["y"]["loss"]["mean"], ElementsAre(1, 0.5));
}

TEST_F(Watched, SendsWhatIsNew) {
  for (int i = 1; i <= 5; ++i) write(line(i, i));
  look(view);
  const auto first = curves(view);
  EXPECT_EQ(first["from"], 0);
  write(line(6, 6));
  look(view);
  const auto next = curves(view, first["generation"], first["per"], 5);
  EXPECT_EQ(next["from"], 4);
  EXPECT_THAT(next["x"]["step"], ElementsAre(5, 6));
  EXPECT_EQ(curves(view, first["generation"].get<int64_t>() + 1, 1, 5)["from"], 0);
  EXPECT_EQ(curves(view, first["generation"], 2, 5)["from"], 0);
  EXPECT_EQ(curves(view, first["generation"], 1, 1000000)["x"]["step"].size(), 0u);
}

TEST_F(Watched, SendsFewerPointsWhenAskedTo) {
  for (int i = 1; i <= 100; ++i) write(line(i, i));
  look(view);
  const auto few = json::parse(view.curves({}, 16));
  EXPECT_EQ(few["per"], 8);
  ASSERT_EQ(few["x"]["step"].size(), 13u);
  EXPECT_EQ(few["x"]["step"][0], 8);
  EXPECT_EQ(few["x"]["step"][12], 100);
  EXPECT_EQ(few["y"]["loss"]["mean"][0], 4.5);
  EXPECT_EQ(few["y"]["loss"]["mean"][12], 98.5);
  for (int i = 101; i <= 110; ++i) write(line(i, i));
  look(view);
  const auto next = json::parse(view.curves({few["generation"], 8, 13}, 16));
  EXPECT_EQ(next["from"], 12);
  EXPECT_THAT(next["x"]["step"], ElementsAre(104, 110));
  EXPECT_THAT(next["y"]["loss"]["mean"], ElementsAre(100.5, 107.5));
}

TEST_F(Watched, ReadsAReplacedFileAnew) {
  for (int i = 1; i <= 5; ++i) write(line(i, i));
  look(view);
  const auto before = curves(view)["generation"];
  fs::rename(folder / "metrics.jsonl", folder / "old");
  write(line(1, 10) + line(2, 20));
  look(view);
  const auto now = curves(view, before, 1, 5);
  EXPECT_EQ(now["from"], 0);
  EXPECT_THAT(now["y"]["loss"]["mean"], ElementsAre(10, 20));
}

TEST_F(Watched, ForgetsWhatWasRolledBackAndSaysSo) {
  write(line(1, 1) + line(2, 2) + line(3, 3));
  write(
      "{\"event\":\"knn\",\"step\":3,\"rollbacks\":0,\"epoch\":1,\"knn\":0.4,\"seconds\":6,\"forward_units\":"
      "9}\n");
  write(
      "{\"event\":\"rollback\",\"step\":1,\"rollbacks\":1,\"failed_step\":4,\"reason\":\"the loss is "
      "<b>\",\"lr\":0.1}\n");
  write(line(2, 22));
  look(view);
  EXPECT_THAT(curves(view)["y"]["loss"]["mean"], ElementsAre(1, 22));
  const auto s = view.status();
  EXPECT_EQ(s["incidents"][0]["kind"], "rollback");
  EXPECT_EQ(s["incidents"][0]["step"], 4);
  EXPECT_EQ(s["incidents"][0]["text"], "the loss is <b>");
  EXPECT_EQ(s["accuracy"].size(), 0u) << "the judged weights are gone too";
}

TEST_F(Watched, DamageIsCountedAndLivedWith) {
  write("garbage\n[1,2]\n{\"loss\":1}\n\n{\"step\":\"x\"}\n" + line(1, 1) + std::string(100, '{') + "\n" +
        line(2, 2));
  look(view);
  EXPECT_THAT(curves(view)["x"]["step"], ElementsAre(1, 2));
  EXPECT_EQ(view.status()["damaged"], 5);
  std::ofstream(folder / "config.yaml") << "encoder: [";
  append(folder / "summary.json", "{\"finished\": tr");
  append(folder / "eval/x.json", "{\"points\": [1, {}]}");
  append(folder / "samples/epoch-0001.png", "no picture");
  append(folder / "samples/epoch-9999999999999999999999.png", "");
  append(folder / "samples/epoch-..png", "");
  look(view);
  EXPECT_THAT(view.status()["problem"].get<std::string>(), ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(view.status()["samples"], ElementsAre(1));
  EXPECT_FALSE(view.sample(1));
  EXPECT_FALSE(view.sample(2));
}

TEST_F(Watched, NestingHasABound) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  append(folder / "summary.json", "{\"finished\":" + deep + "}");
  append(folder / "eval/x.json", "{\"judge\":\"knn\",\"points\":" + deep + "}");
  write(line(1, 1));
  look(view);
  EXPECT_EQ(view.status()["accuracy"].size(), 0u);
  EXPECT_THAT(curves(view)["x"]["step"], ElementsAre(1));
}

TEST_F(Watched, NullIsAGap) {
  write(line(1, 1) + "{\"step\":2,\"epoch\":0.2,\"loss\":null,\"seconds\":4,\"forward_units\":58}\n" +
        line(3, 3));
  look(view);
  EXPECT_EQ(curves(view)["y"]["loss"]["mean"], (json{1, nullptr, 3}));
}

TEST_F(Watched, KnowsHowItIsGoing) {
  look(view);
  EXPECT_EQ(view.status()["state"], "stopped");
  {
    HeldFolder training(folder);
    look(view);
    EXPECT_EQ(view.status()["state"], "starting");
    for (int i = 1; i <= 50; ++i) write(line(i, 1, ",\"images_per_second\":10"));
    look(view);
    const auto s = view.status();
    EXPECT_EQ(s["state"], "running");
    EXPECT_NEAR(s["left"].get<double>(), (20 - 5) * 20, 1e-6);  // 10 steps of 2 s an epoch
    EXPECT_EQ(s["epochs"], 20);
  }
  // It was seen growing a moment ago: it could be the copy of a run elsewhere. Another look knows better.
  RunView later(1, "run", folder);
  look(later);
  auto s = later.status();
  EXPECT_EQ(s["state"], "stopped");
  EXPECT_THAT(s["why"].get<std::string>(), HasSubstr("crashed"));
  EXPECT_EQ(s["resume"], "ebclr train --resume " + folder.string());
  append(folder / "train.log", "2026-01-01T00:01:00Z  stopped at step 50; everything is saved\n");
  look(later);
  EXPECT_THAT(later.status()["why"].get<std::string>(), HasSubstr("everything is saved"));
  append(folder / "train.log",
         "2026-01-01T00:02:00Z  stopped at step 50 of 200; goes on from the checkpoint before\n");
  look(later);
  EXPECT_THAT(later.status()["why"].get<std::string>(), HasSubstr("goes on from the checkpoint before"));
  look(view);
  EXPECT_EQ(view.status()["state"], "stopped");
  write("{\"event\":\"gave_up\",\"step\":50,\"rollbacks\":3,\"reason\":\"the gap ran away\"}\n");
  RunView last(2, "run", folder);
  look(last);
  EXPECT_EQ(last.status()["state"], "gave up");
  EXPECT_EQ(last.status()["why"], "the gap ran away");
  append(folder / "summary.json", "{\"finished\": true, \"steps\": 50}");
  look(last);
  EXPECT_EQ(last.status()["state"], "finished");
  write(line(51, 1));  // made longer
  RunView longer(3, "run", folder);
  look(longer);
  EXPECT_EQ(longer.status()["state"], "stopped");
}

TEST_F(Watched, AnotherFilesLockIsNotThisOnes) {
  append(dir.path() / "other/.lock", "");
  append(folder / ".lock", "");
  HeldFolder other(dir.path() / "other");
  EXPECT_TRUE(is_held(dir.path() / "other/.lock", held_locks()));
  EXPECT_FALSE(is_held(folder / ".lock", held_locks()));
}

TEST_F(Watched, KnowsThatItsFolderIsGone) {
  append(folder / "summary.json", "{\"finished\": true, \"steps\": 1}");
  write(line(1, 1));
  look(view);
  EXPECT_EQ(view.status()["state"], "finished");
  EXPECT_FALSE(view.gone());
  const auto before = view.version();
  fs::remove_all(folder);
  look(view);
  EXPECT_EQ(view.status()["state"], "gone");
  EXPECT_TRUE(view.gone());
  EXPECT_FALSE(view.status().contains("resume")) << "there is nothing to resume";
  EXPECT_GT(view.version(), before);
  begin_run(folder);
  look(view);
  EXPECT_EQ(view.status()["state"], "stopped") << "another one took its place";
  EXPECT_EQ(curves(view)["x"]["step"].size(), 0u);
}

TEST_F(Watched, TheCommandToResumeWorksFromAnywhere) {
  const auto near = fs::relative(folder);
  ASSERT_TRUE(near.is_relative());
  RunView v(6, "near", near);
  look(v);
  EXPECT_EQ(v.status()["resume"],
            "ebclr train --resume " + (fs::current_path() / near).lexically_normal().string());
}

TEST_F(Watched, ACloserLookIsGivenUp) {
  for (int i = 1; i <= 5000; ++i) write(line(i, i));
  look(view);
  int asked = 0;
  EXPECT_EQ(view.detail({Range::Axis::kEpoch, 0, 500}, [&] { return ++asked == 2; }), "");
  EXPECT_EQ(asked, 2) << "in the middle of a file";
}

TEST_F(Watched, QuotesAPathForTheShell) {
  const auto odd = begin_run(dir.path() / "it's <script>");
  RunView v(4, "odd", odd);
  look(v);
  EXPECT_THAT(v.status()["resume"].get<std::string>(), ::testing::EndsWith("it'\\''s <script>'"));
}

TEST_F(Watched, KnowsTheNewestRecordsWithoutTheCurves) {
  for (int i = 1; i <= 3000; ++i) write(line(i, i));
  RunView idle(5, "idle", folder);
  look(idle);
  EXPECT_EQ(idle.status()["step"], 3000);
  EXPECT_EQ(idle.status()["last"]["loss"], 3000);
  EXPECT_EQ(curves(idle)["x"]["step"].size(), 0u);
  idle.want_curves();
  look(idle);
  EXPECT_EQ(curves(idle)["per"], 4);
}

TEST_F(Watched, LooksCloserAtAPart) {
  for (int i = 1; i <= 5000; ++i) write(line(i, i));
  look(view);
  ASSERT_GT(curves(view)["per"], 1);
  const auto part = json::parse(view.detail({Range::Axis::kEpoch, 100, 110}));  // steps 1000 to 1100
  EXPECT_EQ(part["per"], 1);
  const auto steps = part["x"]["step"].get<std::vector<double>>();
  EXPECT_LE(steps.front(), 1000);
  EXPECT_GE(steps.back(), 1100);
  EXPECT_LT(steps.size(), 150u);
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i], steps[i - 1] + 1);
  EXPECT_EQ(json::parse(view.detail({Range::Axis::kSeconds, 1e9, 2e9}))["x"]["step"].size() < 100, true);
  EXPECT_EQ(json::parse(view.detail({Range::Axis::kForwardUnits, 5, 1}))["id"], 0);
}

TEST_F(Watched, ReadsJudgementsSamplesConfigurationAndLog) {
  append(
      folder / "eval/curve.json",
      R"({"judge":"linear","data":"shapes","points":[{"epoch":2,"accuracy":0.5},{"epoch":1,"accuracy":0.25}]})");
  const std::string png = "\x89PNG\r\n\x1a\n...";
  append(folder / "samples/epoch-0005.png", png);
  append(folder / "samples/epoch-0010.png", png);
  append(folder / "train.log", "2026-01-01T00:02:00Z  warning: step 9: projections have collapsed\n");
  look(view);
  const auto s = view.status();
  EXPECT_EQ(s["accuracy"][0]["judge"], "linear probe on shapes");
  EXPECT_THAT(s["accuracy"][0]["accuracy"], ElementsAre(0.25, 0.5));
  EXPECT_THAT(s["samples"], ElementsAre(5, 10));
  EXPECT_EQ(view.sample(10), png);
  EXPECT_FALSE(view.sample(6));
  EXPECT_THAT(s["incidents"][0]["text"].get<std::string>(), HasSubstr("collapsed"));
  const auto c = view.configuration();
  EXPECT_EQ(c["keys"]["train.epochs"], "20");
  EXPECT_TRUE(c["defaults"].contains("train.epochs"));
  EXPECT_FALSE(c["defaults"].contains("train.batch_size"));
  EXPECT_THAT(view.log_tail()["lines"][1].get<std::string>(), HasSubstr("warning: step 9"));
}

}  // namespace
}  // namespace ebclr::watch
