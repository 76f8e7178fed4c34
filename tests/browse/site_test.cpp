#include "browse/site.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>

#include "../index/made.h"
#include "browse/classes.h"
#include "browse/kept.h"
#include "expect_error.h"
#include "image/decode.h"
#include "image/encode.h"
#include "temp_dir.h"

namespace ebclr::browse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Classes classes_of(const std::string& csv) {
  return parse_classes(csv, "x.csv", 3, [](const std::string& path) -> int64_t {
    return path == "a" ? 0 : path == "b\nc" ? 2 : -1;
  });
}

TEST(Classes, QuotedNamesMayHoldAnything) {
  const auto c =
      classes_of("path,given,predicted\r\n\"b\nc\",,\"x,\"\"y\"\"\"\r\na,,z\r\nnone,,w\r\na,short\r\n");
  EXPECT_THAT(c.names, ElementsAre("x,\"y\"", "z"));
  EXPECT_THAT(c.of, ElementsAre(1, -1, 0));
}

TEST(Classes, SaysWhatIsWrong) {
  for (const char* csv : {"", "path,given\na,b\n", "predicted\nx\n"})
    testing::expect_error(
        core::ExitCode::kUsage, [&] { classes_of(csv); }, "x.csv", "no column");
  testing::expect_error(
      core::ExitCode::kUsage, [] { classes_of("path,predicted\n\"a,b\n"); }, "not closed");
}

bool stays() {
  return false;
}

TEST(LateAnswer, IsMadeOnceByWhoeverAsksFirst) {
  LateAnswer answer;
  EXPECT_THROW(answer.get([](const auto&) -> std::string { throw std::runtime_error("not now"); }, stays),
               std::runtime_error);
  int made = 0;
  std::vector<std::future<std::optional<std::string>>> asked;
  for (int i = 0; i < 4; ++i)
    asked.push_back(std::async(std::launch::async, [&] {
      return answer.get([&](const auto&) { return fmt::format("{}", ++made); }, stays);
    }));
  for (auto& a : asked) EXPECT_EQ(a.get(), "1");
}

TEST(LateAnswer, KeepsNobodyWaitingWhoAsksForSomethingElse) {
  LateAnswer copies, strangers;
  Pictures sheets(2);
  std::promise<void> begun, enough;
  auto search = std::async(std::launch::async, [&] {
    return copies.get(
        [&](const auto&) {
          begun.set_value();
          enough.get_future().wait();
          return std::string("copies");
        },
        stays);
  });
  begun.get_future().wait();
  EXPECT_EQ(strangers.get([](const auto&) { return std::string("strangers"); }, stays), "strangers");
  sheets.keep(0, "sheet");
  EXPECT_EQ(sheets.find(0), "sheet");
  enough.set_value();
  EXPECT_EQ(search.get(), "copies");
}

/// Work that goes on until it may finish or is not wanted, and clients that ask for it.
struct Work {
  explicit Work(LateAnswer::Clock::duration patience) : answer(patience) {}
  std::future<std::optional<std::string>> asked_by(const std::atomic<bool>& gone) {
    return std::async(std::launch::async, [this, &gone] {
      return answer.get([this](const auto& stop) { return made(stop); }, [&gone] { return gone.load(); });
    });
  }
  std::string made(const LateAnswer::Stop& stop) {
    begun = true;
    while (!enough) {
      if (stop()) throw std::runtime_error("not wanted");
      std::this_thread::yield();
    }
    return "made";
  }
  void wait_until_begun() const {
    while (!begun) std::this_thread::yield();
  }

  LateAnswer answer;
  std::atomic<bool> begun{false}, enough{false};
};

TEST(LateAnswer, WhoHasGoneDoesNotWait) {
  Work work(std::chrono::hours(1));
  const std::atomic<bool> here{false}, gone{true};
  auto first = work.asked_by(here);
  work.wait_until_begun();
  EXPECT_EQ(work.asked_by(gone).get(), std::nullopt);
  work.enough = true;
  EXPECT_EQ(first.get(), "made");
}

TEST(LateAnswer, WorkThatNobodyWaitsForEnds) {
  Work work(std::chrono::milliseconds(1));
  std::atomic<bool> gone{false};
  auto first = work.asked_by(gone);
  work.wait_until_begun();
  gone = true;
  EXPECT_EQ(first.get(), std::nullopt);
  work.enough = true;
  gone = false;
  EXPECT_EQ(work.asked_by(gone).get(), "made") << "and is begun anew by the next";
}

TEST(LateAnswer, WorkGoesOnForWhoStillWaits) {
  Work work(std::chrono::milliseconds(1));
  std::atomic<bool> gone{false};
  std::atomic<int> looks{0};
  auto first = work.asked_by(gone);
  work.wait_until_begun();
  auto second = std::async(std::launch::async, [&] {
    return work.answer.get([](const auto&) { return std::string("made again"); },
                           [&] { return ++looks, false; });
  });
  while (looks == 0) std::this_thread::yield();  // it has found the work going on
  gone = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  work.enough = true;
  EXPECT_EQ(second.get(), "made");
}

TEST(LateAnswer, EndsAtOnceWithTheServer) {
  Work work(std::chrono::hours(1));
  const std::atomic<bool> here{false};
  auto first = work.asked_by(here), second = work.asked_by(here);
  work.wait_until_begun();
  work.answer.end();
  EXPECT_EQ(first.get(), std::nullopt);
  EXPECT_EQ(second.get(), std::nullopt);
}

TEST(Pictures, OneThatWasMadeTwiceCountsOnce) {
  Pictures sheets(3);
  for (const int64_t n : {0, 1, 1, 2}) sheets.keep(n, fmt::format("sheet {}", n));
  for (const int64_t n : {0, 1, 2}) EXPECT_EQ(sheets.find(n), fmt::format("sheet {}", n));
  sheets.keep(3, "sheet 3");
  EXPECT_EQ(sheets.find(0), std::nullopt);
  for (const int64_t n : {1, 2, 3}) EXPECT_EQ(sheets.find(n), fmt::format("sheet {}", n));
}

TEST(Site, AnswersEveryPathOfThePage) {
  testing::TempDir dir;
  auto c = index::made(20, 8);
  image::Pixels grey(8, 8, 3);
  const auto jpeg = image::encode_jpeg(grey, 80);
  const auto* bytes = reinterpret_cast<const uint8_t*>(jpeg.data());
  for (auto& t : c.thumbnails) t.assign(bytes, bytes + jpeg.size());
  index::write_index(dir / "a.idx", c);
  std::ofstream(dir / "classes.csv") << "path,predicted\nimg000003.png,\"two\nlines\"\n";
  SiteOptions options{.classes = dir / "classes.csv"};
  Site site(index::Index::open(dir / "a.idx"), options);
  const auto ask = [&](const std::string& target) {
    return site.reply_to("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  };
  for (const char* target : {"/", "/page.css", "/page.js", "/info", "/map", "/sheet?n=0", "/thumb?n=19",
                             "/image?n=0", "/near?n=3&top=5", "/strangers", "/copies", "/find?text=img"})
    EXPECT_THAT(ask(target), StartsWith("HTTP/1.1 200")) << target;
  EXPECT_THAT(ask("/image?n=3"), HasSubstr(R"("class":"two\nlines")"));
  for (const char* target : {"/sheet?n=1", "/thumb?n=20", "/thumb?n=-1", "/image?n=1e1", "/near", "/near?n=x",
                             "/sheet?n=99999999999999999999", "/a.idx"})
    EXPECT_THAT(ask(target), StartsWith("HTTP/1.1 404")) << target;
}

/// An index of n pictures of one colour each, and what its page is answered.
struct Served {
  testing::TempDir dir;
  std::unique_ptr<Site> site;

  explicit Served(int64_t n, uint64_t seed = 1, const std::string& first = "") {
    auto c = index::made(n, 8, seed);
    if (!first.empty()) c.paths[0] = first;
    for (int64_t i = 0; i < n; ++i) {
      image::Pixels plain(8, 8, 3);
      std::fill(plain.data.begin(), plain.data.end(), shade(i));
      const auto jpeg = image::encode_jpeg(plain, 95);
      const auto* bytes = reinterpret_cast<const uint8_t*>(jpeg.data());
      c.thumbnails[static_cast<size_t>(i)].assign(bytes, bytes + jpeg.size());
    }
    index::write_index(dir / "a.idx", c);
    site = std::make_unique<Site>(index::Index::open(dir / "a.idx"), SiteOptions{});
  }
  static uint8_t shade(int64_t i) { return static_cast<uint8_t>(i * 13 % 256); }

  std::string ask(const std::string& target) const {
    return site->reply_to("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  std::string body(const std::string& target) const {
    const auto reply = ask(target);
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200")) << target;
    return reply.substr(reply.find("\r\n\r\n") + 4);
  }
  nlohmann::json told(const std::string& target) const { return nlohmann::json::parse(body(target)); }
};

TEST(Site, TellsAPageOfAnotherIndexSo) {
  const Served one(20), same(20), other(20, 2), renamed(20, 1, "a.png");
  const std::string id = one.told("/info")["id"];
  ASSERT_FALSE(id.empty());
  EXPECT_EQ(same.told("/info")["id"], id) << "a restart";
  for (const char* target : {"/map?", "/sheet?n=0&", "/thumb?n=3&", "/image?n=3&", "/near?n=3&",
                             "/strangers?", "/copies?", "/find?text=img&"}) {
    EXPECT_THAT(one.ask(target + ("of=" + id)), StartsWith("HTTP/1.1 200")) << target;
    for (const auto* another : {&other, &renamed})
      EXPECT_THAT(another->ask(target + ("of=" + id)), StartsWith("HTTP/1.1 409")) << target;
  }
  EXPECT_THAT(other.ask("/info?of=" + id), StartsWith("HTTP/1.1 200")) << "it tells which one it is";
}

TEST(Site, NamesWhatItFinds) {
  const Served served(20, 1, "Album/Img<b>.PNG");
  const auto near = served.told("/near?n=3&top=5");
  ASSERT_EQ(near.size(), 5u);
  EXPECT_EQ(near[0]["n"], 3);
  EXPECT_EQ(near[0]["name"], "img000003.png");
  EXPECT_NEAR(near[0]["value"].get<double>(), 1, 1e-5);
  for (const auto& h : served.told("/strangers")) EXPECT_TRUE(h["name"].is_string());
  for (const auto& group : served.told("/copies"))
    for (const auto& h : group) EXPECT_TRUE(h["name"].is_string() && h["n"].is_number());
  for (const char* text : {"img%3Cb%3E.png", "IMG%3CB", "album/"}) {
    const auto found = served.told(std::string("/find?text=") + text);
    ASSERT_EQ(found.size(), 1u) << text;
    EXPECT_EQ(found[0]["name"], "Album/Img<b>.PNG");
  }
  EXPECT_EQ(served.told("/find?text=IMG").size(), 20u) << "however it is typed";
}

TEST(Site, TheMapSaysWhereOnTheSheetsAnImageIs) {
  const int64_t n = 300;
  const Served served(n);
  const auto map = served.body("/map");
  ASSERT_EQ(map.size(), static_cast<size_t>(n) * (2 * sizeof(float) + sizeof(uint32_t)));
  std::vector<uint32_t> slots(static_cast<size_t>(n));
  std::memcpy(slots.data(), map.data() + static_cast<size_t>(n) * 2 * sizeof(float),
              slots.size() * sizeof slots[0]);
  std::set<uint32_t> different(slots.begin(), slots.end());
  ASSERT_EQ(different.size(), slots.size());
  ASSERT_EQ(*different.rbegin(), static_cast<uint32_t>(n - 1));
  for (const uint32_t sheet : {0u, 1u}) {
    const auto bytes = served.body("/sheet?n=" + std::to_string(sheet));
    const auto pixels = image::decode(std::as_bytes(std::span(bytes)), "sheet");
    for (int64_t i = 0; i < n; ++i) {
      if (slots[static_cast<size_t>(i)] / 256 != sheet) continue;
      const int k = static_cast<int>(slots[static_cast<size_t>(i)] % 256);
      EXPECT_NEAR(pixels.row(k / 16 * 48 + 24)[3 * (k % 16 * 48 + 24)], Served::shade(i), 6) << "image " << i;
    }
  }
}

TEST(Site, SaysWhenClassesAreOfOtherImages) {
  testing::TempDir dir;
  index::write_index(dir / "a.idx", index::made(20, 8));
  const auto note = [&](const std::string& path) {
    std::ofstream(dir / "classes.csv") << "path,predicted\n" << path << ",cat\n";
    return Site(index::Index::open(dir / "a.idx"), {.classes = dir / "classes.csv"}).note();
  };
  EXPECT_THAT(note("elsewhere/img000003.png"), HasSubstr("classes.csv: names none of the images"));
  EXPECT_EQ(note("img000003.png"), "");
  EXPECT_EQ(Site(index::Index::open(dir / "a.idx"), {}).note(), "") << "without classes";
}

TEST(Site, TheMapIsGivenUpWhenItsProgressThrows) {
  testing::TempDir dir;
  index::write_index(dir / "a.idx", index::made(20, 8));
  const SiteOptions options{.progress = [](double) { throw std::runtime_error("Ctrl-C"); }};
  EXPECT_THROW(Site(index::Index::open(dir / "a.idx"), options), std::runtime_error);
}

TEST(Site, RefusesAWeakTokenBeforeItLaysOutTheMap) {
  testing::TempDir dir;
  index::write_index(dir / "a.idx", index::made(20, 8));
  SiteOptions options{.progress = [](double) { ADD_FAILURE() << "the map came first"; }};
  options.server.token = "a";
  testing::expect_error(
      core::ExitCode::kUsage, [&] { Site(index::Index::open(dir / "a.idx"), options); }, "--token");
}

}  // namespace
}  // namespace ebclr::browse
