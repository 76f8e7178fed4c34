#include "browse/site.h"

#include <gmock/gmock.h>

#include <fstream>

#include "../index/made.h"
#include "browse/classes.h"
#include "expect_error.h"
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

}  // namespace
}  // namespace ebclr::browse
