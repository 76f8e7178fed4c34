#include "watch/answers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "scratch_run.h"

namespace ebclr::watch {
namespace {

using ebclr::testing::append;
using ebclr::testing::begin_run;
using ebclr::testing::line;
using ebclr::testing::TempDir;
using nlohmann::json;

web::Request asking(const std::string& name, const std::string& value) {
  return {.path = "/", .query = {{name, value}, {"low", "0"}, {"high", "1000"}}};
}

std::string repeated(const std::string& word, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += (i > 0 ? "," : "") + word;
  return out;
}

/// Everything that there is to read of runs whose curves were asked for.
void look(Watcher& watcher) {
  watcher.find();
  while (watcher.refresh()) {
  }
}

TEST(Answers, EachRunOnceHoweverOftenItIsNamed) {
  TempDir dir;
  const auto a = begin_run(dir.path() / "a"), b = begin_run(dir.path() / "b");
  for (const auto& folder : {a, b}) append(folder / "metrics.jsonl", line(1, 1));
  Watcher w({dir.path()});
  look(w);
  const auto ids = [](const web::Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<int64_t> out;
    for (const auto& part : json::parse(reply.body)) out.push_back(part["id"]);
    return out;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(ids(series(w, asking("ask", repeated("1.0.0.0,0.0.0.0", 100)))), ElementsAre(1, 0));
  EXPECT_THAT(ids(series(w, asking("ask", "0.0.0.0,0.1.1.1"))), ElementsAre(0));
  EXPECT_THAT(ids(detail(w, asking("runs", repeated("0,1", 100)))), ElementsAre(0, 1));
  EXPECT_THAT(ids(configurations(w, asking("runs", repeated("1", 200)))), ElementsAre(1));
}

TEST(Answers, RefuseWhatIsTooMuchOrNoQuestion) {
  Watcher w(std::vector<std::filesystem::path>{});
  EXPECT_EQ(series(w, asking("ask", repeated("0.0.0.0", 201))).status, 400);
  EXPECT_EQ(detail(w, asking("runs", repeated("0", 201))).status, 400);
  EXPECT_EQ(configurations(w, asking("runs", repeated("0", 201))).status, 400);
  EXPECT_EQ(detail(w, asking("runs", "0,1,2,3,4,5,6,7")).body, "[]");
  EXPECT_EQ(detail(w, asking("runs", "0,1,2,3,4,5,6,7,8")).status, 400) << "each may take seconds";
  for (const char* ask : {"x", "0.0.0", "-1.0.0.0", "0.0.0.0.0"})
    EXPECT_EQ(series(w, asking("ask", ask)).status, 400) << ask;
}

TEST(Answers, LongOnesEndEarly) {
  TempDir dir;
  const auto first = begin_run(dir.path() / "00");
  std::string records;
  for (int i = 1; i <= 1000; ++i) {
    std::string more;
    for (int k = 0; k < 100; ++k) more += fmt::format(",\"m{}\":{}.2345", k, i + k);
    records += line(i, 1, more);
  }
  append(first / "metrics.jsonl", records);
  std::string ask = "0.0.0.0";
  const int runs = 12;
  for (int i = 1; i < runs; ++i) {
    std::filesystem::copy(first, dir.path() / fmt::format("{:02}", i),
                          std::filesystem::copy_options::recursive);
    ask += fmt::format(",{}.0.0.0", i);
  }
  Watcher w({dir.path()});
  look(w);
  series(w, asking("ask", ask));  // from now on their curves are read
  look(w);
  const auto one = series(w, asking("ask", "0.0.0.0")).body.size();
  ASSERT_GT(one * runs, kMostReply + 2 * one) << "this test needs more metrics";
  const auto reply = series(w, asking("ask", ask));
  EXPECT_LE(reply.body.size(), kMostReply + one + 100);
  const auto parts = json::parse(reply.body);
  EXPECT_GT(parts.size(), 0u);
  EXPECT_LT(parts.size(), static_cast<size_t>(runs));
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i]["id"], i) << "in the order of the question";
}

TEST(Answers, EndWhenNobodyWaits) {
  TempDir dir;
  append(begin_run(dir.path() / "a") / "metrics.jsonl", line(1, 1));
  append(begin_run(dir.path() / "b") / "metrics.jsonl", line(1, 1));
  Watcher w({dir.path()});
  look(w);
  series(w, asking("ask", "0.0.0.0,1.0.0.0"));
  look(w);
  for (const auto& answer : {series, detail, configurations}) {
    auto q = asking("runs", "0,1");
    q.query["ask"] = "0.0.0.0,1.0.0.0";
    EXPECT_EQ(answer(w, q).status, 200);
    int asked = 0;
    q.given_up = [&] { return ++asked == 2; };
    EXPECT_EQ(answer(w, q).status, 503);
    EXPECT_EQ(asked, 2) << "between runs";
  }
}

}  // namespace
}  // namespace ebclr::watch
