#include "watch/watcher.h"

#include <gmock/gmock.h>

#include "scratch_run.h"

namespace ebclr::watch {
namespace {

using namespace std::chrono_literals;
using ebclr::testing::append;
using ebclr::testing::begin_run;
using ebclr::testing::line;
using ebclr::testing::TempDir;
using nlohmann::json;

std::vector<std::string> names(const Watcher& w) {
  std::vector<std::string> out;
  for (const auto& r : w.runs()) out.push_back(r->name());
  return out;
}

TEST(Watcher, FindsRunsAlsoLaterOnes) {
  TempDir dir;
  begin_run(dir.path() / "a");
  begin_run(dir.path() / "deep/er/b");
  std::filesystem::create_directory_symlink(dir.path(), dir.path() / "deep/circle");
  append(dir.path() / "a/checkpoints/config.yaml", "");  // inside a run nothing else is one
  Watcher w({dir.path(), dir.path() / "later"});
  w.find();
  EXPECT_THAT(names(w), ::testing::ElementsAre("a", "deep/er/b"));
  begin_run(dir.path() / "later");
  w.find();
  EXPECT_THAT(names(w), ::testing::ElementsAre("a", "deep/er/b", "later"))
      << "once, though two folders hold it";
  EXPECT_EQ(w.run(2)->name(), "later");
  EXPECT_EQ(w.run(3), nullptr);
  EXPECT_EQ(w.run(-1), nullptr);
}

TEST(Watcher, FindsRunsBesideALargeDataSet) {
  TempDir dir;
  // As many files as the search once looked at altogether.
  std::filesystem::create_directories(dir.path() / "photos");
  for (int i = 0; i <= 50000; ++i) std::ofstream(dir.path() / "photos" / std::to_string(i));
  begin_run(dir.path() / "runs/a");
  bool truncated = false;
  EXPECT_THAT(find_runs(dir.path(), truncated), ::testing::ElementsAre(dir.path() / "runs/a"));
  EXPECT_FALSE(truncated);
}

TEST(Watcher, FindsWhatIsNearFirstAndSaysWhenItStopped) {
  TempDir dir;
  for (const char* name : {"a/b/c/deep", "z"}) begin_run(dir.path() / name);
  const auto found = [&](const SearchLimits& limits, bool expected) {
    bool truncated = false;
    const auto out = find_runs(dir.path(), truncated, limits);
    EXPECT_EQ(truncated, expected);
    return out;
  };
  const auto deep = dir.path() / "a/b/c/deep", near = dir.path() / "z";
  EXPECT_THAT(found({}, false), ::testing::ElementsAre(deep, near));
  EXPECT_THAT(found({.runs = 1}, true), ::testing::ElementsAre(near));
  EXPECT_THAT(found({.folders = 4}, true), ::testing::ElementsAre(near));
  EXPECT_THAT(found({.folders = 6}, false), ::testing::ElementsAre(deep, near));
  EXPECT_THAT(found({.entries = 3}, true), ::testing::ElementsAre(near));
  EXPECT_THAT(found({.depth = 2}, false), ::testing::ElementsAre(near));
  std::filesystem::create_directories(dir.path() / "a/b/c/more");
  EXPECT_THAT(found({.in_folder = 2}, false), ::testing::ElementsAre(deep, near));
  found({.in_folder = 1}, true);
}

TEST(Watcher, ListenersHearThatRunsMayBeMissing) {
  TempDir dir;
  begin_run(dir.path() / "a");
  Watcher w({dir.path()}, {.runs = 1});
  w.find();
  w.refresh();
  Watcher::Listener one(w);
  EXPECT_EQ(json::parse(one.next(1ms))["truncated"], false);
  const auto b = begin_run(dir.path() / "b");
  w.find();
  EXPECT_EQ(json::parse(one.next(1ms))["truncated"], true) << "without a change of any run";
  w.find();
  EXPECT_EQ(one.next(1ms), "") << "once";
  Watcher::Listener two(w);
  EXPECT_EQ(json::parse(two.next(1ms))["truncated"], true);
  std::filesystem::remove_all(b);
  w.find();
  EXPECT_EQ(json::parse(one.next(1ms))["truncated"], false);
}

TEST(Watcher, ListenersHearThatARunIsGone) {
  TempDir dir;
  const auto a = begin_run(dir.path() / "a");
  Watcher w({dir.path()});
  w.find();
  w.refresh();
  Watcher::Listener one(w);
  EXPECT_EQ(json::parse(one.next(1ms))["runs"].size(), 1u);
  std::filesystem::remove_all(a);
  w.find();
  w.refresh();
  const auto heard = json::parse(one.next(1ms));
  ASSERT_EQ(heard["runs"].size(), 1u);
  EXPECT_EQ(heard["runs"][0]["id"], 0);
  EXPECT_EQ(heard["runs"][0]["state"], "gone");
  // A page that was away comes back with a new listener: it may still show the run.
  Watcher::Listener back(w);
  EXPECT_EQ(json::parse(back.next(1ms))["runs"][0]["state"], "gone");
  begin_run(a);
  w.find();
  w.refresh();
  const auto again = json::parse(one.next(1ms));
  ASSERT_EQ(again["runs"].size(), 1u);
  EXPECT_EQ(again["runs"][0]["id"], 0) << "under its old number";
  EXPECT_EQ(again["runs"][0]["state"], "stopped");
}

TEST(Watcher, NamesOfEqualFoldersDiffer) {
  TempDir dir;
  begin_run(dir.path() / "x/run");
  begin_run(dir.path() / "y/run");
  Watcher w({dir.path() / "x", dir.path() / "y/"});
  w.find();
  ASSERT_EQ(w.runs().size(), 2u);
  EXPECT_EQ(names(w)[0], "run");
  EXPECT_NE(names(w)[1], "run");
}

TEST(Watcher, ListenersHearWhatChangedAndNothingTwice) {
  TempDir dir;
  const auto a = begin_run(dir.path() / "a"), b = begin_run(dir.path() / "<script>b");
  Watcher w({dir.path()});
  w.find();
  w.refresh();
  Watcher::Listener one(w), two(w);
  const auto first = json::parse(one.next(1ms));
  EXPECT_EQ(first["runs"].size(), 2u);
  EXPECT_EQ(one.next(1ms), "");
  append(a / "metrics.jsonl", line(1, 1));
  w.refresh();
  const auto second = json::parse(one.next(1ms));
  ASSERT_EQ(second["runs"].size(), 1u);
  EXPECT_EQ(second["runs"][0]["name"], "a");
  EXPECT_EQ(json::parse(two.next(1ms))["runs"].size(), 2u);
  StudyBoard board;
  board.title = "Table 1";
  w.show(board);
  EXPECT_EQ(json::parse(one.next(1ms))["study"]["title"], "Table 1");
  w.show(board);  // the same again is no news
  EXPECT_EQ(one.next(1ms), "");
}

TEST(Watcher, WatchesWhileSomebodyListens) {
  TempDir dir;
  const auto a = begin_run(dir.path() / "a");
  Watcher w({dir.path()});
  w.start();
  Watcher::Listener one(w);
  // The first message may come before anything was found.
  const auto hear = [&] {
    for (int i = 0; i < 100; ++i)
      if (const auto text = one.next(100ms); !text.empty() && !json::parse(text)["runs"].empty())
        return json::parse(text)["runs"][0];
    return json();
  };
  EXPECT_EQ(hear()["name"], "a");
  append(a / "metrics.jsonl", line(1, 1));
  EXPECT_EQ(hear()["step"], 1);
}

}  // namespace
}  // namespace ebclr::watch
