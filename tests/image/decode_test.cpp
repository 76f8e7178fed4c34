#include "image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "core/error.h"
#include "image/formats.h"
#include "image/make_images.h"
#include "image/read_file.h"
#include "temp_dir.h"

namespace ebclr::image {
namespace {

using ::testing::AllOf;
using testing::be;
using ::testing::ElementsAre;
using testing::encode;
using ::testing::HasSubstr;
using testing::le;
using testing::plain;
using testing::two_colours;

std::span<const std::byte> bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

Pixels decoded(const std::string& content, int at_least = 0) {
  return decode(bytes(content), "f", {.at_least = at_least});
}

std::vector<int> at(const Pixels& p, int x, int y) {
  const auto* v = p.row(y) + x * p.channels;
  return {v, v + p.channels};
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ExitCode::kUsage) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "an error is one line";
    return e.what();
  }
  return "";
}

std::string file(const std::string& name) {
  std::ifstream in(std::string(EBCLR_IMAGE_FILES) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Decode, EveryFormatByItsMagic) {
  for (const char* extension : {".png", ".bmp", ".ppm", ".webp", ".tiff"}) {
    const auto p = decoded(encode(two_colours(), extension));
    ASSERT_EQ(p.width, 40) << extension;
    ASSERT_EQ(p.height, 20) << extension;
    EXPECT_THAT(at(p, 19, 3), ElementsAre(255, 0, 0)) << extension;
    EXPECT_THAT(at(p, 20, 3), ElementsAre(0, 255, 0)) << extension;
  }
  const auto jpeg = decoded(encode(two_colours(), ".jpg"));
  EXPECT_NEAR(at(jpeg, 2, 3)[0], 254, 4);
  EXPECT_NEAR(at(jpeg, 37, 3)[1], 255, 4);
  for (const char* name : {"two.gif", "interlaced.gif", "animated.gif", "animated.webp"}) {
    const auto p = decoded(file(name));
    ASSERT_EQ(p.width, 40) << name;
    EXPECT_THAT(at(p, 3, 3), ElementsAre(255, 0, 0)) << name << ": the first frame";
    EXPECT_THAT(at(p, 30, 19), ElementsAre(0, 255, 0)) << name;
  }
}

TEST(Decode, AvifAndHeicWhereBuilt) {
  for (const char* name : {"two.avif", "two.heic"}) {
    const bool built = readable_formats().find(std::string(name).substr(4)) != std::string::npos;
    if (!built) {
      EXPECT_THAT(error_of([&] { decoded(file(name)); }), HasSubstr("built without"));
      continue;
    }
    const auto p = decoded(file(name));
    ASSERT_EQ(p.width, 40) << name;
    EXPECT_NEAR(at(p, 4, 4)[0], 255, 6) << name;
    EXPECT_NEAR(at(p, 35, 4)[1], 255, 6) << name;
    for (size_t n = 0; n < file(name).size(); n += 7)
      EXPECT_NE(error_of([&] { decoded(file(name).substr(0, n)); }), "") << name << " cut at " << n;
  }
  if (readable_formats().find("avif") != std::string::npos) {
    const auto turned = decoded(file("turned.avif"));  // a quarter to the left: red was left, now it is below
    ASSERT_EQ(turned.height, 40);
    EXPECT_GT(at(turned, 10, 35)[0], 240);
    EXPECT_GT(at(turned, 10, 4)[1], 240);
  }
}

TEST(Decode, GreyDeepAndTransparent) {
  Pixels grey(20, 20, 1);
  std::fill(grey.data.begin(), grey.data.end(), uint8_t{77});
  EXPECT_THAT(at(decoded(encode(grey, ".png")), 5, 5), ElementsAre(77));
  EXPECT_THAT(at(decoded(file("transparent.gif")), 2, 2), ElementsAre(10, 20, 30));
  EXPECT_THAT(at(decoded(file("transparent.gif")), 12, 2), ElementsAre(255, 255, 255));
  const auto cmyk = at(decoded(file("cmyk.jpg")), 8, 8);  // no cyan, all magenta and yellow: red
  EXPECT_GT(cmyk[0], 245);
  EXPECT_LT(cmyk[1], 12);
  EXPECT_LT(cmyk[2], 12);
  EXPECT_THAT(at(decoded(file("bilevel.bmp")), 30, 3), ElementsAre(255, 255, 255));
  EXPECT_THAT(at(decoded(file("palette.bmp")), 3, 3), ElementsAre(255, 0, 0));
}

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  return be(data.size(), 4) + body +
         be(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())), 4);
}

// A PNG of a bit depth and colour type; `rows` without filter bytes.
std::string png_of(uint32_t width, uint32_t height, int depth, int type, const std::string& rows,
                   const std::string& before = "") {
  std::string raw;
  const size_t stride = rows.size() / height;
  for (uint32_t y = 0; y < height; ++y) raw += std::string(1, '\0') + rows.substr(y * stride, stride);
  std::string packed(compressBound(raw.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()),
           raw.size());
  packed.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", be(width, 4) + be(height, 4) + static_cast<char>(depth) + static_cast<char>(type) +
                               std::string(3, '\0')) +
         before + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

std::string repeat(const std::string& s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += s;
  return out;
}

TEST(Decode, PngDepthsPalettesAndAlpha) {
  const auto deep =
      decoded(png_of(4, 4, 16, 2, repeat(be(257 * 200, 2) + be(257 * 20, 2) + be(257 * 10, 2), 16)));
  EXPECT_THAT(at(deep, 2, 2), ElementsAre(200, 20, 10));
  const auto half = decoded(png_of(4, 4, 8, 6, repeat(std::string("\xff\x00\x00\x80", 4), 16)));
  EXPECT_THAT(at(half, 1, 1), ElementsAre(255, 127, 127));  // half transparent red over white
  const auto grey_alpha = decoded(png_of(4, 4, 8, 4, repeat(std::string("\x00\x00", 2), 16)));
  EXPECT_THAT(at(grey_alpha, 1, 1), ElementsAre(255));
  const std::string palette = png_chunk("PLTE", std::string("\x0a\x14\x1e\xc8\x64\x32", 6));
  const std::string indices = repeat(std::string("\x00\x01", 2), 2 * 4);
  EXPECT_THAT(at(decoded(png_of(4, 4, 8, 3, indices, palette)), 1, 0), ElementsAre(200, 100, 50));
  const auto clear =
      decoded(png_of(4, 4, 8, 3, indices, palette + png_chunk("tRNS", std::string("\xff\x00", 2))));
  EXPECT_THAT(at(clear, 0, 0), ElementsAre(10, 20, 30));
  EXPECT_THAT(at(clear, 1, 0), ElementsAre(255, 255, 255));
  const auto two_bits = decoded(png_of(4, 1, 2, 0, "\x1b"));  // 0, 1, 2, 3
  EXPECT_THAT(two_bits.data, ElementsAre(0, 85, 170, 255));
}

TEST(Decode, TiffDepthsFloatsBigTiffAndCmyk) {
  using testing::tiff_file;
  using testing::TiffKind;
  const TiffKind two{.bits = 2, .channels = 1, .photometric = PHOTOMETRIC_MINISBLACK};
  EXPECT_THAT(at(decoded(tiff_file(4, 1, two, "\x1b")), 2, 0), ElementsAre(170, 170, 170));
  const TiffKind four{.bits = 4, .channels = 1, .photometric = PHOTOMETRIC_MINISBLACK};
  EXPECT_THAT(at(decoded(tiff_file(2, 1, four, "\x0f")), 1, 0), ElementsAre(255, 255, 255));
  const TiffKind sixteen{.bits = 16, .channels = 3};
  EXPECT_THAT(
      at(decoded(tiff_file(1, 1, sixteen, le(257 * 9, 2) + le(257 * 99, 2) + le(257 * 199, 2))), 0, 0),
      ElementsAre(9, 99, 199));
  const TiffKind cmyk{.bits = 8, .channels = 4, .photometric = PHOTOMETRIC_SEPARATED};
  EXPECT_THAT(at(decoded(tiff_file(1, 1, cmyk, std::string("\0\xff\xff\0", 4))), 0, 0),
              ElementsAre(255, 0, 0));
  const auto p = two_colours();
  const std::string rows(p.data.begin(), p.data.end());
  const auto big = tiff_file(p.width, p.height, {.mode = "w8"}, rows);
  ASSERT_EQ(static_cast<int>(big[2]), 43);
  EXPECT_THAT(at(decoded(big), 30, 3), ElementsAre(0, 255, 0));
  const auto turned = decoded(tiff_file(p.width, p.height, {.orientation = 6}, rows));
  ASSERT_EQ(turned.height, 40);
  EXPECT_THAT(at(turned, 5, 5), ElementsAre(255, 0, 0));  // what was left is above
  const auto floats = [&](float a, float b) {
    std::string s(8, '\0');
    std::memcpy(s.data(), &a, 4);
    std::memcpy(s.data() + 4, &b, 4);
    return tiff_file(2, 1,
                     {.bits = 32,
                      .channels = 1,
                      .photometric = PHOTOMETRIC_MINISBLACK,
                      .format = SAMPLEFORMAT_IEEEFP,
                      .compression = COMPRESSION_NONE},
                     s);
  };
  EXPECT_THAT(decoded(floats(0.5f, 1.0f)).data, ElementsAre(128, 255));
  EXPECT_THAT(decoded(floats(500.0f, 1000.0f)).data,
              ElementsAre(128, 255));  // beyond [0, 1]: up to the largest
  for (float bad : {std::nanf(""), INFINITY})
    EXPECT_THAT(error_of([&] { decoded(floats(bad, 0)); }), HasSubstr("NaN"));
}

// A grey TIFF of two deep samples.
template <class T>
std::string deep_tiff(int format, T a, T b) {
  std::string s(2 * sizeof(T), '\0');
  std::memcpy(s.data(), &a, sizeof(T));
  std::memcpy(s.data() + sizeof(T), &b, sizeof(T));
  return testing::tiff_file(2, 1,
                            {.bits = static_cast<int>(8 * sizeof(T)),
                             .channels = 1,
                             .photometric = PHOTOMETRIC_MINISBLACK,
                             .format = format,
                             .compression = COMPRESSION_NONE},
                            s);
}

TEST(Decode, TiffSamplesBeyondAFloatAreRefused) {
  EXPECT_THAT(decoded(deep_tiff(SAMPLEFORMAT_IEEEFP, 0.5, 1.0)).data, ElementsAre(128, 255));
  EXPECT_THAT(error_of([] { decoded(deep_tiff(SAMPLEFORMAT_IEEEFP, 1e300, 0.0)); }),
              HasSubstr("beyond 3.4e38"));
  EXPECT_THAT(error_of([] { decoded(deep_tiff(SAMPLEFORMAT_IEEEFP, -1e300, 0.0)); }),
              HasSubstr("beyond 3.4e38"));
  EXPECT_THAT(error_of([] { decoded(deep_tiff(SAMPLEFORMAT_IEEEFP, -3e38f, 3e38f)); }),
              HasSubstr("further apart"));
  EXPECT_THAT(decoded(deep_tiff(SAMPLEFORMAT_INT, -5, 5)).data, ElementsAre(0, 255));
  // Plus one is the same float there: nothing may be divided by the difference.
  EXPECT_THAT(decoded(deep_tiff(SAMPLEFORMAT_INT, INT32_MIN, INT32_MIN)).data, ElementsAre(0, 0));
}

std::string with_orientation(std::string jpeg, char orientation) {
  const std::string tiff = std::string("MM\0\x2a\0\0\0\x08", 8) + std::string("\0\x01", 2) +
                           std::string("\x01\x12\0\x03\0\0\0\x01\0", 9) + orientation + std::string(2, '\0') +
                           std::string(4, '\0');
  const std::string exif = std::string("Exif\0\0", 6) + tiff;
  return jpeg.insert(2, std::string("\xFF\xE1", 2) + be(exif.size() + 2, 2) + exif);
}

TEST(Decode, HonoursTheCamerasOrientation) {
  // Red, green in the upper row; blue, white below. Where each corner must be seen, by EXIF's definition.
  Pixels p(32, 32, 3);
  const auto colour = [](int x, int y) -> std::array<uint8_t, 3> {
    if (y < 16) return x < 16 ? std::array<uint8_t, 3>{255, 0, 0} : std::array<uint8_t, 3>{0, 255, 0};
    return x < 16 ? std::array<uint8_t, 3>{0, 0, 255} : std::array<uint8_t, 3>{255, 255, 255};
  };
  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x) std::copy_n(colour(x, y).begin(), 3, p.row(y) + 3 * x);
  const auto name = [](const std::vector<int>& c) {
    return c[0] > 128 ? (c[1] > 128 ? 'w' : 'r') : c[1] > 128 ? 'g' : 'b';
  };
  const char* expected[] = {"", "rgbw", "grwb", "wbgr", "bwrg", "rbgw", "brwg", "wgbr", "gwrb"};
  for (int o = 1; o <= 8; ++o) {
    const auto seen = decoded(with_orientation(encode(p, ".jpg"), static_cast<char>(o)));
    std::string corners;
    for (const auto& [x, y] : {std::pair{4, 4}, {27, 4}, {4, 27}, {27, 27}}) corners += name(at(seen, x, y));
    EXPECT_EQ(corners, expected[o]) << "orientation " << o;
  }
  EXPECT_EQ(decoded(with_orientation(encode(two_colours(), ".jpg"), 6)).height, 40);
  EXPECT_EQ(decoded(with_orientation(encode(two_colours(), ".jpg"), 99)).height, 20) << "nonsense is ignored";
}

TEST(Decode, LargeJpegsComeReduced) {
  const auto jpeg = encode(two_colours(800, 400), ".jpg");
  EXPECT_EQ(decoded(jpeg, 0).height, 400);
  EXPECT_EQ(decoded(jpeg, 201).height, 400) << "half of it would be too small";
  EXPECT_EQ(decoded(jpeg, 200).height, 200);
  EXPECT_EQ(decoded(jpeg, 20).height, 50) << "an eighth is the least";
  EXPECT_GT(at(decoded(jpeg, 20), 20, 25)[0], 240);
  EXPECT_EQ(decoded(file("progressive.jpg"), 8).height, 8);
}

TEST(Decode, LyingHeadersAreRefused) {
  const auto refused = [](std::string content, size_t at, const std::string& value) {
    content.replace(at, value.size(), value);
    return error_of([&] { decode(bytes(content), "f.x"); });
  };
  EXPECT_THAT(refused(encode(two_colours(), ".png"), 16, be(30000, 4) + be(30000, 4)),
              AllOf(HasSubstr("f.x"), HasSubstr("30000 x 30000"), HasSubstr("too large")));
  EXPECT_THAT(refused(encode(two_colours(), ".bmp"), 18, "\xff\xff\xff\x7f"), HasSubstr("too large"));
  EXPECT_THAT(refused(file("two.gif"), 6, le(65535, 2) + le(65535, 2)), HasSubstr("too large"));
  EXPECT_THAT(refused("P6 40 20 255\n", 3, "4000000000000"), HasSubstr("billion"));
  EXPECT_THAT(refused("P6 40 20 255\nabc", 0, ""),
              HasSubstr("2400 bytes of pixels expected, the file holds 3"));
  EXPECT_THAT(refused(encode(two_colours(), ".png"), 16, be(0, 4)), HasSubstr("at least 1 x 1"));
  EXPECT_THAT(refused("hello, this is text", 0, ""), HasSubstr("offset 0: unknown magic number"));
  EXPECT_THAT(refused("", 0, ""), HasSubstr("empty"));
}

TEST(Decode, TwoFrameHeadersAreRefused) {
  // libjpeg would believe the first and allocate 3 GB, a reader of headers the last.
  auto jpeg = encode(two_colours(), ".jpg");
  const auto sof = jpeg.find("\xFF\xC0");
  ASSERT_NE(sof, std::string::npos);
  const size_t length = 2 + static_cast<uint8_t>(jpeg[sof + 2]) * 256 + static_cast<uint8_t>(jpeg[sof + 3]);
  auto huge = jpeg.substr(sof, length);
  huge.replace(5, 4, be(32000, 2) + be(32000, 2));
  jpeg.insert(sof, huge);
  EXPECT_THAT(error_of([&] { decoded(jpeg); }), HasSubstr("second frame header"));
}

TEST(Decode, TilesThatMakeMoreThanTheHeaderSaysAreRefused) {
  // libheif believes the size of the grid of tiles: 1.1 kB became 1.5 GB while the header said 40 x 20.
  auto heic = file("two.heic");
  const auto grid = heic.find("idat");
  ASSERT_NE(grid, std::string::npos);
  ASSERT_EQ(heic.substr(grid + 8, 4), be(40, 2) + be(20, 2)) << "width and height of the grid";
  decoded(heic);
  heic.replace(grid + 8, 4, be(20000, 2) + be(20000, 2));
  EXPECT_THAT(error_of([&] { decoded(heic); }), HasSubstr("not a readable heic"));
}

TEST(Decode, ManyScansAreRefused) {
  // Each scan of a progressive file is a pass over all coefficients: a small file could keep a core busy for
  // hours.
  auto jpeg = file("progressive.jpg");
  const auto last = jpeg.rfind("\xFF\xDA");
  const auto scan = jpeg.substr(last, jpeg.size() - 2 - last);
  std::string more;
  for (int i = 0; i < 400; ++i) more += scan;
  jpeg.insert(jpeg.size() - 2, more);
  EXPECT_THAT(error_of([&] { decoded(jpeg); }), HasSubstr("scans"));
}

TEST(Decode, TruncatedFilesAreRejected) {
  for (const char* extension : {".jpg", ".png", ".ppm", ".webp", ".bmp"}) {
    const auto whole = encode(two_colours(), extension);
    for (size_t n = 0; n < whole.size(); n += 1 + whole.size() / 150)
      ASSERT_NE(error_of([&] { decoded(whole.substr(0, n)); }), "") << extension << " cut at " << n;
  }
  const auto gif = file("two.gif");
  for (size_t n = 0; n + 30 < gif.size(); n += 3)
    ASSERT_NE(error_of([&] { decoded(gif.substr(0, n)); }), "") << "gif cut at " << n;
}

TEST(Decode, DamagedFilesNeverCrashOrPrint) {
  std::mt19937 random(3);
  std::vector<std::string> wholes;
  for (const char* extension : {".jpg", ".png", ".bmp", ".ppm", ".webp", ".tiff"})
    wholes.push_back(encode(two_colours(), extension));
  for (const char* name : {"two.gif", "animated.gif", "interlaced.gif", "animated.webp", "two.avif",
                           "two.heic", "cmyk.jpg", "progressive.jpg", "palette.bmp"})
    wholes.push_back(file(name));
  ::testing::internal::CaptureStderr();
  for (const auto& whole : wholes)
    for (int i = 0; i < 120; ++i) {
      auto damaged = whole;
      // Mostly in the header, where sizes and offsets are.
      const size_t reach = i % 3 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 64);
      for (int k = 0; k < 1 + i % 3; ++k) damaged[random() % reach] = static_cast<char>(random());
      if (i % 5 == 0) damaged.resize(random() % damaged.size());
      error_of([&] { decoded(damaged, 16); });  // either way, but no other exception
    }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Sniff, KnowsFilesByTheirFirstBytes) {
  const auto format = [](const std::string& s) {
    return std::string(name_of(sniff(bytes(s.substr(0, kSniffBytes)))));
  };
  EXPECT_EQ(format(encode(two_colours(), ".jpg")), "jpeg");
  EXPECT_EQ(format(encode(two_colours(), ".bmp")), "bmp");
  EXPECT_EQ(format(file("two.avif")), "avif");
  EXPECT_EQ(format(file("two.heic")), "heic");
  EXPECT_EQ(format("BMI tables of 1998 and what became of them"), "unknown") << "text may begin with BM";
  EXPECT_EQ(format("P60 is a phone"), "unknown");
  EXPECT_EQ(format("Prices"), "unknown");
  EXPECT_EQ(format(""), "unknown");
  EXPECT_TRUE(has_picture_name("IMG.0001.JPeG"));
  EXPECT_FALSE(has_picture_name("jpg"));
}

TEST(ReadFile, NeverWaitsForPipesNorReadsDevices) {
  const testing::TempDir dir;
  const auto pipe = dir / "pipe.jpg";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_regular(pipe); }), HasSubstr("not a regular file"));
  std::filesystem::create_symlink("/dev/zero", dir / "zero.jpg");
  EXPECT_THAT(error_of([&] { read_regular(dir / "zero.jpg"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] { read_regular(dir / "none.jpg"); }), HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace ebclr::image
