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
