#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "expect_error.h"
#include "report/chart.h"

namespace ebclr::report {
namespace {

using ::ebclr::testing::expect_error;
using ::testing::HasSubstr;
using ::testing::Not;

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

/// The data that the script of a figure reads.
nlohmann::json data_of(const std::string& html) {
  const std::string open = "<script type=\"application/json\">";
  const auto begin = html.find(open) + open.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

const std::string kNasty =
    "</script><script>alert('x')</script> & \"quoted\" <img src=http://a.b/c onerror=x>";

TEST(Escape, MarkupControlCharactersAndBrokenUtf8) {
  EXPECT_EQ(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape("\u00e9\u2713\U0001F600"), "\u00e9\u2713\U0001F600");
  EXPECT_EQ(escape("a\xff"
                   "b\xc3"),
            "a\uFFFD"
            "b\uFFFD");
  EXPECT_EQ(escape("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD") << "surrogates are not text";
  EXPECT_EQ(escape(std::string("a\0b\x1b", 4)), "a\uFFFDb\uFFFD");
}

TEST(Page, NothingThatIsSaidBecomesMarkup) {
  Page p(kNasty, kNasty);
  p.heading(kNasty);
  p.text(kNasty);
  p.callout(Tone::kBad, kNasty, kNasty);
  p.table({kNasty, {kNasty, kNasty}, {{Cell(kNasty, Tone::kBest, kNasty), kNasty}}});
  p.chart({kNasty, kNasty, kNasty, {{.name = kNasty, .x = {1, 2}, .y = {1, 2}}}});
  p.matrix({kNasty, {kNasty}, {{1}}});
  PointMap map{kNasty, {1, 2}, {1, 2}, {0, 0}, {kNasty}, {kNasty, kNasty}};
  p.map(map);
  p.facts({{kNasty, kNasty}});
  p.code(kNasty);
  p.begin_details(kNasty);
  const auto html = p.html();
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<img src=http")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_EQ(count(html, "</script>"), 3) << "a chart's data, a map's, and the page's own";
}

TEST(Page, IsWholeAndFetchesNothing) {
  Page p("Title", "Subtitle");
  p.heading("One");
  p.heading("Two", 3);
  p.heading("One");
  p.begin_details("more");
  p.heading("Hidden");
  p.end_details();
  const auto html = p.html();
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  EXPECT_THAT(html, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(html, HasSubstr("<h2 id=\"one\">One</h2>"));
  EXPECT_THAT(html, HasSubstr("<h2 id=\"one-2\">One</h2>"));
  EXPECT_THAT(html, HasSubstr("<a href=\"#one-2\">One</a>"));
  EXPECT_THAT(html, Not(HasSubstr("href=\"#hidden\"")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_THAT(html, Not(HasSubstr("http://")));
  EXPECT_THAT(html, Not(HasSubstr("https://")));
  EXPECT_EQ(count(html, "<details"), count(html, "</details>"));
}

TEST(Page, OpenDetailsAreClosedAtTheEnd) {
  Page p("t", "");
  p.begin_details("a");
  p.begin_details("b");
  EXPECT_EQ(count(p.html(), "</details>"), 2);
  p.end_details();
  p.end_details();
  EXPECT_EQ(count(p.html(), "</details>"), 2);
  expect_error(
      core::ExitCode::kUsage, [&] { p.end_details(); }, "[report]");
}

TEST(Page, TablesHaveScopesAndAlignNumbers) {
  Page p("t", "");
  p.table({"caption",
           {"name", "value", "word"},
           {{"a", "1.5 \u00b1 0.2", "x"}, {"b", "-", "12 of y"}, {"c", "3", "z"}}});
  const auto html = p.html();
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\" class=\"n\">value</th>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"col\">word</th>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">a</th>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">3</td>"));
  EXPECT_THAT(html, HasSubstr("<figcaption>caption</figcaption>"));
}

TEST(Page, ShortRowsAreFilledUp) {
  Page p("t", "");
  p.table({"", {"a", "b", "c"}, {{"x"}}});
  EXPECT_THAT(p.html(),
              HasSubstr("<tr><th scope=\"row\">x</th><td class=\"n\"></td><td class=\"n\"></td></tr>"));
}

TEST(Page, PicturesNeedAPictureAndHaveAltText) {
  const auto png = plot::encode_png({4, 2, std::vector<uint8_t>(24, 100)});
  Page p("t", "");
  p.picture(png, "a <caption>");
  EXPECT_THAT(p.html(), HasSubstr("<img src=\"data:image/png;base64,iVBORw0KGgo"));
  EXPECT_THAT(p.html(), HasSubstr("alt=\"a &lt;caption&gt;\" width=\"2\" height=\"1\""));
  expect_error(
      core::ExitCode::kUsage, [&] { p.picture(std::vector<std::byte>(50), "c"); }, "[report]", "'c'");
}

TEST(Page, MatrixIsSquareAndSaysWhatWasMistaken) {
  Page p("t", "");
  p.matrix({"m", {"cat", "dog"}, {{8, 2}, {0, 0}}});
  EXPECT_THAT(p.html(), HasSubstr("title=\"cat taken for dog: 2 of 10 (20.0 %)\">2</td>"));
  EXPECT_THAT(p.html(), HasSubstr("<td class=\"m9 hit\""));
  expect_error(
      core::ExitCode::kUsage,
      [&] {
        p.matrix({"m", {"cat", "dog"}, {{1, 2}, {3}}});
      },
      "[report]");
}

TEST(Chart, SeriesWithoutPointsSayNoData) {
  EXPECT_THAT(chart_html({"t", "x", "y", {{.name = "a"}}}), HasSubstr("No data"));
  EXPECT_THAT(chart_html({"t", "x", "y", {}}), HasSubstr("No data"));
  EXPECT_THAT(chart_html({"t", "x", "y", {{.name = "a", .x = {1}, .y = {NAN}}}}), HasSubstr("No data"));
  EXPECT_THAT(chart_html({"t", "x", "y", {{.name = "a", .x = {1}, .y = {-1}}}, false, true}),
              HasSubstr("No data"));
}

TEST(Chart, PointsThatAreNotFiniteInterruptTheLine) {
  const auto html = chart_html(
      {"t", "x", "y", {{.name = "a", .x = {0, 1, 2, 3, 4}, .y = {0, 1, NAN, INFINITY, 1}}, {.name = "b"}}});
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf")));
  std::smatch line;
  ASSERT_TRUE(std::regex_search(html, line, std::regex("class=\"line c0\" d=\"([^\"]*)\"")));
  EXPECT_EQ(line[1].str(), "M0 1000L250 0M1000 0");
  const auto data = data_of(html);
  EXPECT_EQ(data["series"][0]["y"].dump(), "[0.0,1.0,null,1.0]");
  EXPECT_EQ(data["series"][1]["y"].size(), 0u);
}

TEST(Chart, CountsMustAgree) {
  expect_error(
      core::ExitCode::kUsage,
      [] {
        chart_html({"t", "x", "y", {{.name = "a", .x = {1, 2}, .y = {1}}}});
      },
      "'a'", "2 x");
  expect_error(
      core::ExitCode::kUsage,
      [] {
        chart_html({"t", "x", "y", {{.name = "a", .x = {1}, .y = {1}}}, false, false, {1, 2}});
      },
      "colours");
}

TEST(Chart, ColoursCanBeChosen) {
  const auto html = chart_html({"t", "x", "y", {{.name = "a", .x = {1, 2}, .y = {1, 2}}}, false, false, {3}});
  EXPECT_THAT(html, HasSubstr("class=\"line c3\""));
  EXPECT_EQ(data_of(html)["series"][0]["c"], 3);
}

TEST(Chart, BandsGoThereAndBack) {
  const auto html =
      chart_html({"t", "x", "y", {{.name = "a", .x = {0, 1}, .y = {1, 1}, .low = {0, 0}, .high = {2, 2}}}});
  EXPECT_THAT(html, HasSubstr("class=\"band c0\" d=\"M0 1000L1000 1000L1000 0L0 0Z\""));
}

TEST(Chart, LogarithmicAxesReadBackTheirValues) {
  const auto data = data_of(
      chart_html({"t", "x", "y", {{.name = "a", .x = {1, 30, 1000}, .y = {0.01, 1, 100}}}, true, true}));
  EXPECT_NEAR(data["series"][0]["x"][1].get<double>(), 30, 1e-3);
  EXPECT_EQ(data["ay"][2], true);
}

TEST(Thin, KeepsEveryExtremeAndTheEnds) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100000; ++i) points.push_back({double(i), std::sin(i * 0.01), 0, 0});
  points[54321].y = 99;
  points[77777].y = -99;
  const auto few = thin(points, 0, 99999, 200);
  EXPECT_LE(few.size(), 800u);
  EXPECT_GE(few.size(), 200u);
  EXPECT_EQ(few.front().x, 0);
  EXPECT_EQ(few.back().x, 99999);
  const auto [low, high] =
      std::minmax_element(few.begin(), few.end(), [](const auto& a, const auto& b) { return a.y < b.y; });
  EXPECT_EQ(high->x, 54321);
  EXPECT_EQ(low->x, 77777);
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(Thin, BandsKeepTheirWidestReach) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 1000; ++i) points.push_back({double(i), 0, i == 499 ? -5.0 : -1, i == 498 ? 7.0 : 1});
  double low = 0, high = 0;
  for (const auto& p : thin(points, 0, 999, 10)) low = std::min(low, p.low), high = std::max(high, p.high);
  EXPECT_EQ(low, -5);
  EXPECT_EQ(high, 7);
}

TEST(AxisLabel, ShortAndTellsNeighboursApart) {
  EXPECT_EQ(axis_label(0, 10), "0");
  EXPECT_EQ(axis_label(5000, 1000), "5000");
  EXPECT_EQ(axis_label(20000, 20000), "20k");
  EXPECT_EQ(axis_label(12500, 2500), "12.5k");
  EXPECT_EQ(axis_label(3e6, 1e6), "3M");
  EXPECT_EQ(axis_label(-0.25, 0.25), "-0.25");
}

TEST(Map, LeavesOutWhatIsNotFiniteAndKeepsTheOrderOfImages) {
  PointMap m{"t", {0, NAN, 1}, {0, 1, 1}, {0, 0, -1}, {"cat"}};
  const auto data = data_of(map_html(m));
  ASSERT_EQ(data["points"].size(), 3u);
  EXPECT_TRUE(data["points"][1].is_null());
  EXPECT_EQ(data["points"][2][2], 1) << "without a label: the group after the last class";
  EXPECT_THAT(map_html(m), HasSubstr("no label"));
  m.classes.pop_back();
  expect_error(
      core::ExitCode::kUsage, [&] { map_html(m); }, "3 x", "2 classes");
}

TEST(Base64, AllLengths) {
  auto of = [](const std::string& s) {
    return base64(reinterpret_cast<const std::byte*>(s.data()), s.size());
  };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foobar\xff"), "Zm9vYmFy/w==");
}

TEST(Markdown, EscapesPipesAndMarksTheBest) {
  const Table t{"c", {"a|b", "n"}, {{"x|y", Cell("1", Tone::kBest)}, {"two\nlines <b>", "2"}}};
  EXPECT_EQ(to_markdown(t),
            "c\n\n| a\\|b | n |\n|---|--:|\n| x\\|y | **1** |\n| two<br>lines &lt;b> | 2 |\n");
  EXPECT_EQ(to_markdown({}), "");
}

TEST(Csv, QuotesWhatNeedsIt) {
  EXPECT_EQ(to_csv({"c", {"a,b", "n"}, {{"say \"hi\"", "1"}, {"two\nlines"}}}),
            "\"a,b\",n\n\"say \"\"hi\"\"\",1\n\"two\nlines\",\n");
}

}  // namespace
}  // namespace ebclr::report
