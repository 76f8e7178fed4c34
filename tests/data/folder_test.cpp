#include "data/folder.h"

#include <fmt/format.h>

#include <opencv2/imgcodecs.hpp>
#include <random>

#include "data/catalog.h"
#include "data/scratch.h"

namespace ebclr::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string encode(const cv::Mat& image, const std::string& extension) {
  std::vector<uint8_t> bytes;
  std::vector<int> parameters;
  if (extension == ".webp") parameters = {cv::IMWRITE_WEBP_QUALITY, 101};  // lossless
  cv::imencode(extension, image, bytes, parameters);
  return {bytes.begin(), bytes.end()};
}

// Left half blue-free red, right half green, as OpenCV's BGR.
cv::Mat two_colours(int width = 40, int height = 20) {
  cv::Mat m(height, width, CV_8UC3, cv::Scalar(0, 0, 255));
  m(cv::Rect(width / 2, 0, width - width / 2, height)) = cv::Scalar(0, 255, 0);
  return m;
}

std::span<const std::byte> bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// [C, size, size]
torch::Tensor decoded(const std::string& content, int64_t size, bool gray = false) {
  auto out = torch::empty({gray ? 1 : 3, size, size}, torch::kUInt8);
  decode_image(bytes(content), "f", size, gray, out.data_ptr<uint8_t>());
  return out;
}

std::vector<int> rgb(const torch::Tensor& image, int64_t y, int64_t x) {
  std::vector<int> v;
  for (int64_t c = 0; c < image.size(0); ++c) v.push_back(image[c][y][x].item<int>());
  return v;
}

TEST(Folder, DecodesEveryFormat) {
  for (const char* extension : {".png", ".bmp", ".ppm", ".webp", ".tiff"}) {
    const auto image = decoded(encode(two_colours(), extension), 20);
    // The centre 20 x 20 of 40 x 20: ten columns of each.
    EXPECT_THAT(rgb(image, 3, 9), ElementsAre(255, 0, 0)) << extension;
    EXPECT_THAT(rgb(image, 3, 10), ElementsAre(0, 255, 0)) << extension;
  }
  const auto jpeg = decoded(encode(two_colours(), ".jpg"), 20);
  EXPECT_NEAR(rgb(jpeg, 3, 2)[0], 254, 4);
  EXPECT_NEAR(rgb(jpeg, 3, 17)[1], 255, 4);
}

TEST(Folder, ResizesTheShortSideAndCropsTheCentre) {
  const auto image = decoded(encode(two_colours(90, 30), ".png"), 10);
  EXPECT_THAT(rgb(image, 0, 4), ElementsAre(255, 0, 0));
  EXPECT_THAT(rgb(image, 9, 5), ElementsAre(0, 255, 0));
  EXPECT_EQ(decoded(encode(two_colours(3, 500), ".png"), 32).sizes(), (std::vector<int64_t>{3, 32, 32}));
  EXPECT_EQ(decoded(encode(cv::Mat(1, 1, CV_8UC3, cv::Scalar(1, 2, 3)), ".png"), 16)[0]
                .to(torch::kFloat32)
                .mean()
                .item<float>(),
            3);
}

TEST(Folder, TreatsGreyDeepAndTransparentImages) {
  const auto grey = decoded(encode(cv::Mat(20, 20, CV_8UC1, cv::Scalar(77)), ".png"), 20);
  EXPECT_THAT(rgb(grey, 5, 5), ElementsAre(77, 77, 77));
  EXPECT_THAT(rgb(decoded(encode(two_colours(), ".png"), 20, true), 0, 0),
              ElementsAre(76));  // luminance of red
  const auto deep =
      decoded(encode(cv::Mat(20, 20, CV_16UC3, cv::Scalar(257 * 10, 257 * 20, 257 * 200)), ".png"), 20);
  EXPECT_THAT(rgb(deep, 5, 5), ElementsAre(200, 20, 10));
  // Half transparent red over white; fully transparent black is white.
  const auto half = decoded(encode(cv::Mat(20, 20, CV_8UC4, cv::Scalar(0, 0, 255, 128)), ".png"), 20);
  EXPECT_THAT(rgb(half, 5, 5), ElementsAre(255, 127, 127));
  EXPECT_THAT(rgb(decoded(encode(cv::Mat(20, 20, CV_8UC4, cv::Scalar(0, 0, 0, 0)), ".png"), 20), 0, 0),
              ElementsAre(255, 255, 255));
}

std::string le(uint64_t v, int bytes) {
  std::string s;
  for (int i = 0; i < bytes; ++i) s += static_cast<char>(v >> 8 * i);
  return s;
}

// A grey TIFF of 4 x 4 floats.
std::string float_tiff(float value) {
  const std::vector<std::pair<int, uint32_t>> entries = {{256, 4}, {257, 4}, {258, 32}, {259, 1},  {262, 1},
                                                         {273, 8}, {277, 1}, {278, 4},  {279, 64}, {339, 3}};
  std::string pixels;
  for (int i = 0; i < 16; ++i) pixels.append(reinterpret_cast<const char*>(&value), 4);
  std::string ifd = le(entries.size(), 2);
  for (const auto& [tag, v] : entries) ifd += le(tag, 2) + le(3, 2) + le(1, 4) + le(v, 4);
  return "II" + le(42, 2) + le(8 + 64, 4) + pixels + ifd + le(0, 4);
}

TEST(Folder, TreatsFloatImages) {
  EXPECT_NEAR(rgb(decoded(float_tiff(0.5f), 8), 4, 4)[1], 127.5, 0.6);
  EXPECT_EQ(rgb(decoded(float_tiff(2.0f), 8), 4, 4)[1], 255);
  for (float bad : {std::nanf(""), INFINITY})
    EXPECT_THAT(error_of([&] { decoded(float_tiff(bad), 8); }), HasSubstr("NaN"));
}

std::string png_number(uint64_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  return png_number(data.size()) + body +
         png_number(crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
}

// A PNG of palette indices; entry 1 may be transparent.
std::string palette_png(uint32_t width, uint32_t height, bool transparent) {
  std::string raw;
  for (uint32_t y = 0; y < height; ++y) {
    raw += '\0';
    for (uint32_t x = 0; x < width; ++x) raw += static_cast<char>(x < width / 2 ? 0 : 1);
  }
  std::string packed(compressBound(raw.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(raw.data()),
           raw.size());
  packed.resize(size);
  std::string png = "\x89PNG\r\n\x1a\n";
  png += png_chunk("IHDR", png_number(width) + png_number(height) + std::string("\x08\x03\x00\x00\x00", 5));
  png += png_chunk("PLTE", std::string("\x0a\x14\x1e\xc8\x64\x32", 6));
  if (transparent) png += png_chunk("tRNS", std::string("\xff\x00", 2));
  return png + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

TEST(Folder, TreatsPalettes) {
  const auto plain = decoded(palette_png(16, 16, false), 16);
  EXPECT_THAT(rgb(plain, 0, 0), ElementsAre(10, 20, 30));
  EXPECT_THAT(rgb(plain, 0, 15), ElementsAre(200, 100, 50));
  const auto clear = decoded(palette_png(16, 16, true), 16);
  EXPECT_THAT(rgb(clear, 0, 0), ElementsAre(10, 20, 30));
  EXPECT_THAT(rgb(clear, 0, 15), ElementsAre(255, 255, 255));
}

TEST(Folder, HonoursTheCamerasOrientation) {
  // Orientation 6: the camera was turned, the image must be turned a quarter to the right to be upright.
  const std::string tiff = std::string("MM\0\x2a\0\0\0\x08", 8) + std::string("\0\x01", 2) +
                           std::string("\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 12) + std::string(4, '\0');
  const std::string exif = std::string("Exif\0\0", 6) + tiff;
  const auto length = static_cast<uint16_t>(exif.size() + 2);
  auto jpeg = encode(two_colours(32, 32), ".jpg");
  EXPECT_GT(rgb(decoded(jpeg, 32), 16, 4)[0], 240);  // upright: left is red
  jpeg.insert(2,
              std::string("\xFF\xE1", 2) + static_cast<char>(length >> 8) + static_cast<char>(length) + exif);
  const auto turned = decoded(jpeg, 32);
  EXPECT_GT(rgb(turned, 4, 16)[0], 240);  // turned right: top is red, bottom green
  EXPECT_GT(rgb(turned, 27, 16)[1], 240);
}

TEST(Folder, LyingHeadersAreRefusedBeforeDecoding) {
  const auto refused = [](std::string content, size_t at, const std::string& value) {
    content.replace(at, value.size(), value);
    return error_of([&] { inspect_image(bytes(content), "f.x"); });
  };
  EXPECT_THAT(refused(encode(two_colours(), ".png"), 16, png_number(30000) + png_number(30000)),
              AllOf(HasSubstr("f.x"), HasSubstr("30000 x 30000"), HasSubstr("too large")));
  EXPECT_THAT(refused(encode(two_colours(), ".bmp"), 18, "\xff\xff\xff\x7f"), HasSubstr("too large"));
  EXPECT_THAT(refused("P6 40 20 255\n", 3, "4000000000000"), HasSubstr("billion"));
  EXPECT_THAT(refused("P6 40 20 255\nabc", 0, ""),
              HasSubstr("2400 bytes of pixels expected, the file holds 3"));
  EXPECT_THAT(refused(encode(two_colours(), ".png"), 16, png_number(0)), HasSubstr("at least 1 x 1"));
  EXPECT_THAT(refused("GIF89a", 0, ""), HasSubstr("offset 0: unknown magic number"));
  EXPECT_THAT(refused("", 0, ""), HasSubstr("empty"));
}

TEST(Folder, TruncatedImagesAreRejected) {
  for (const char* extension : {".jpg", ".png", ".ppm", ".webp"}) {
    const auto whole = encode(two_colours(), extension);
    for (size_t n = 0; n < whole.size(); n += 1 + whole.size() / 150)
      ASSERT_NE(error_of([&] { decoded(whole.substr(0, n), 16); }), "") << extension << " cut at " << n;
  }
}

TEST(Folder, DamagedImagesNeverCrash) {
  std::mt19937 random(3);
  for (const char* extension : {".jpg", ".png", ".bmp", ".ppm", ".webp", ".tiff"}) {
    const auto whole = encode(two_colours(), extension);
    for (int i = 0; i < 120; ++i) {
      auto damaged = whole;
      // Mostly in the header, where sizes and offsets are.
      const size_t reach = i % 3 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 64);
      for (int k = 0; k < 1 + i % 3; ++k) damaged[random() % reach] = static_cast<char>(random());
      if (i % 5 == 0) damaged.resize(random() % damaged.size());
      error_of([&] { decoded(damaged, 16); });  // either way, but no other exception
    }
  }
}

TEST(Folder, SubFoldersAreClasses) {
  const Scratch dir;
  for (const char* name : {"dog/1.png", "cat/b.PNG", "cat/a.png", "bird/x.bmp", "notes.txt", ".hidden/z.png"})
    dir.write(name, encode(two_colours(), ".png"));
  const auto set = read_folder(dir.path(), {.image_size = 16});
  EXPECT_THAT(set.files, ElementsAre("bird/x.bmp", "cat/a.png", "cat/b.PNG", "dog/1.png"));
  EXPECT_THAT(set.class_names, ElementsAre("bird", "cat", "dog"));
  EXPECT_TRUE(torch::equal(set.labels, torch::tensor({0, 1, 1, 2}, torch::kInt64)));
  EXPECT_EQ(set.pixels.sizes(), (std::vector<int64_t>{4, 3, 16, 16}));
  EXPECT_TRUE(set.labelled());
  EXPECT_TRUE(torch::equal(read_folder(dir.path(), {.image_size = 16, .threads = 3}).pixels, set.pixels));
}

TEST(Folder, FlatAndDeepFoldersHaveNoLabels) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (const char* name : {"flat/a.png", "flat/b.png", "deep/2024/01/a.png", "deep/2024/02/b.png",
                           "deep/2025/01/c.png", "one/only/a.png"})
    dir.write(name, png);
  for (const char* name : {"flat", "deep", "one"}) {
    const auto set = read_folder(dir / name, {});
    EXPECT_EQ(set.classes(), 0) << name;
    EXPECT_FALSE(set.labelled());
    EXPECT_TRUE((set.labels == kNoLabel).all().item<bool>());
  }
}

TEST(Folder, LinksThatGoInCirclesAreSafe) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  dir.write("a/1.png", png);
  dir.write("b/2.png", png);
  std::filesystem::create_directory_symlink(dir.path(), dir / "a/up");
  std::filesystem::create_directory_symlink(dir / "b", dir / "b/self");
  std::filesystem::create_symlink(dir / "nowhere.png", dir / "b/broken.png");
  const auto set = read_folder(dir.path(), {});
  EXPECT_THAT(set.files, ElementsAre("a/1.png", "b/2.png"));
  EXPECT_EQ(set.classes(), 2);
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0], HasSubstr("b/broken.png"));
}

TEST(Folder, UnreadableFilesAreNamedAndFatalOnlyIfMost) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (int i = 0; i < 5; ++i)
    dir.write(fmt::format("g{}.png", i),
              i == 2 ? encode(cv::Mat(20, 20, CV_8UC3, cv::Scalar(9, 9, 9)), ".png") : png);
  dir.write("a.png", "no image");
  dir.write("g1x.jpg", encode(two_colours(), ".jpg").substr(0, 300));
  const auto set = read_folder(dir.path(), {.image_size = 20});
  EXPECT_EQ(set.size(), 5);
  EXPECT_EQ(set.files[2], "g2.png");
  EXPECT_THAT(rgb(set.pixels[2], 0, 0), ElementsAre(9, 9, 9));  // still the pixels of that file
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0],
              AllOf(HasSubstr("2 of 7 files"), HasSubstr("a.png, g1x.jpg"), HasSubstr("unknown magic")));
  for (int i = 0; i < 9; ++i) dir.write(fmt::format("bad{}.png", i), "");
  EXPECT_THAT(error_of([&] { read_folder(dir.path(), {}); }),
              AllOf(HasSubstr("11 of 16 images cannot be read"), HasSubstr("and 6 more")));
  EXPECT_THAT(error_of([&] { read_folder(dir / "none", {}); }), HasSubstr("not a folder"));
  std::filesystem::create_directory(dir / "empty");
  EXPECT_THAT(error_of([&] { read_folder(dir / "empty", {}); }), HasSubstr("no images"));
  EXPECT_THAT(error_of([&] { read_folder(dir.path(), {.image_size = 4}); }), HasSubstr("image_size is 4"));
}

TEST(Folder, DamageIsReportedByNotesAlone) {
  const Scratch dir;
  for (int i = 0; i < 4; ++i) dir.write(fmt::format("good{}.png", i), encode(two_colours(), ".png"));
  auto png = encode(two_colours(), ".png");
  png[png.find("IDAT") + 8] ^= 0x55;  // libpng prints an error
  dir.write("bad.png", png);
  auto jpeg = encode(two_colours(), ".jpg");
  for (size_t i = jpeg.size() - 40; i < jpeg.size() - 2; ++i) jpeg[i] = 0x11;  // libjpeg prints a warning
  dir.write("odd.jpg", jpeg);

  ::testing::internal::CaptureStderr();
  error_of([&] { decoded(png, 16); });
  error_of([&] { decoded(jpeg, 16); });
  const auto loud = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(loud, AllOf(HasSubstr("libpng"), HasSubstr("JPEG")));  // or this test would test nothing

  ::testing::internal::CaptureStderr();
  const auto set = read_folder(dir.path(), {.image_size = 16, .threads = 2});
  std::fprintf(stderr, "after");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "after");
  ASSERT_EQ(set.notes.size(), 1u);
  EXPECT_THAT(set.notes[0], HasSubstr("1 of 6 files could not be read and are left out: bad.png"));
}

TEST(Folder, CsvLabelsAPart) {
  const Scratch dir;
  for (const char* name : {"i/a.png", "i/b.png", "i/c,d.png", "i/e.png", "i/sub/f.png"})
    dir.write(name, encode(two_colours(), ".png"));
  const auto labelled = [&](const std::string& csv) {
    return read_folder(dir / "i", {.labels_csv = dir.write("labels.csv", csv)});
  };
  const auto set =
      labelled("\xEF\xBB\xBFpath,label\r\na.png,10\n./sub/f.png,9\n\"c,d.png\",\"10\"\ngone.png,9\n\n");
  EXPECT_THAT(set.class_names, ElementsAre("9", "10"));  // as numbers
  EXPECT_TRUE(torch::equal(set.labels, torch::tensor({1, -1, 1, -1, 0}, torch::kInt64)));
  EXPECT_FALSE(set.labelled());
  EXPECT_THAT(set.notes.at(0), HasSubstr("gone.png"));
  const auto message = [&](const std::string& csv) { return error_of([&] { labelled(csv); }); };
  EXPECT_THAT(message("a.png,x\nb.png\n"), HasSubstr("labels.csv: line 2: 1 field(s); expected path,label"));
  EXPECT_THAT(message("a.png,x\nb.png,\n"), HasSubstr("line 2: the label is empty"));
  EXPECT_THAT(message("a.png,x\na.png,y\n"), HasSubstr("line 2: a.png is labelled y, and x further up"));
  EXPECT_THAT(message("a.png,\"x\n"), HasSubstr("line 1: a quote is not closed"));
  EXPECT_THAT(message("z.png,x\n"), HasSubstr("none of its 1 lines names an image"));
  EXPECT_THAT(message(std::string("a.png,\0x\n", 9)), HasSubstr("binary data"));
  EXPECT_THAT(error_of([&] { read_folder(dir / "i", {.labels_csv = dir / "none.csv"}); }),
              HasSubstr("no such file"));
}

TEST(Folder, BecomesTrainAndTest) {
  const Scratch dir;
  for (int i = 0; i < 20; ++i)
    dir.write(std::string(i % 2 ? "x" : "y") + "/" + std::to_string(i) + ".png",
              encode(two_colours(), ".png"));
  const auto d = load({.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2, .seed = 1});
  EXPECT_EQ(d.train.size(), 16);
  EXPECT_EQ(d.test.size(), 4);
  EXPECT_EQ(d.test.labels.sum().item<int64_t>(), 2);  // two of each class
  EXPECT_EQ(d.train.split, "train");
  EXPECT_EQ(d.test.split, "test");
  EXPECT_EQ(load({.source = dir.path().string(), .test_fraction = 0}).test.size(), 0);
  EXPECT_EQ(load({.source = dir.path().string(), .limit = 6}).train.labels.sum().item<int64_t>(), 3);
}

TEST(Folder, TrainBesideTestAreTheSplits) {
  const Scratch dir;
  const auto png = encode(two_colours(), ".png");
  for (const char* name : {"train/x/1.png", "train/y/2.png", "train/y/3.png", "val/x/4.png", "val/y/5.png"})
    dir.write(name, png);
  const auto d = load({.source = dir.path().string()});
  EXPECT_EQ(d.train.size(), 3);
  EXPECT_EQ(d.test.size(), 2);
  EXPECT_THAT(d.train.class_names, ElementsAre("x", "y"));
  dir.write("val/z/6.png", png);
  EXPECT_THAT(error_of([&] { load({.source = dir.path().string()}); }), HasSubstr("different class folders"));
}

}  // namespace
}  // namespace ebclr::data
