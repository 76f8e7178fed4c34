#include "data/image_cache.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include "core/files.h"
#include "data/catalog.h"
#include "data/folder.h"
#include "data/image_list.h"
#include "data/loader.h"
#include "data/scratch.h"
#include "image/make_images.h"

namespace ebclr::data {
namespace {

namespace fs = std::filesystem;
using ebclr::testing::encode;
using ebclr::testing::plain;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string grey_png(int value) {
  return encode(
      plain(30, 20, static_cast<uint8_t>(value), static_cast<uint8_t>(value), static_cast<uint8_t>(value)),
      ".png");
}

// What statvfs (at the end of this file) says is free; negative: the truth.
std::atomic<double> free_bytes = -1;

struct FreeBytes {
  explicit FreeBytes(double bytes) { free_bytes = bytes; }
  ~FreeBytes() { free_bytes = -1; }
};

/// While alive, no file grows beyond so many bytes: a write fails half-way, as on a full disk.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }

 private:
  void (*signal_)(int);
  rlimit before_{};
};

class ImageCache : public ::testing::Test {
 protected:
  Scratch dir;
  /// Some of the photos, straight from the cache below "root".
  DecodeRequest request(const std::vector<std::string>& names, int64_t size,
                        CacheKind cache = CacheKind::kDisk) const {
    DecodeRequest r{.folder = dir / "photos",
                    .image_size = size,
                    .cache = cache,
                    .cache_folder = dir / "root/images",
                    .threads = 1};
    for (const auto& f : find_pictures(r.folder).files)
      if (std::find(names.begin(), names.end(), f.path) != names.end()) r.files.push_back(f);
    EXPECT_EQ(r.files.size(), names.size());
    return r;
  }
  fs::path cache_file() const {
    for (const auto& e : fs::directory_iterator(dir / "root/images"))
      if (e.path().extension() == ".images") return e.path();
    return {};
  }
  ino_t cache_inode() const {
    struct stat s {};
    ::stat(cache_file().c_str(), &s);
    return s.st_ino;
  }
  SourceOptions options() const {
    return {.source = (dir / "photos").string(),
            .data_root = dir / "root",
            .image_size = 16,
            .test_fraction = 0.25,
            .cache = CacheKind::kDisk};
  }
  void fill(int n) const {
    for (int i = 0; i < n; ++i) dir.write(fmt::format("photos/{:02}.png", i), grey_png(10 * i));
  }
  // Value of each image by its file's name.
  static std::map<std::string, int> values(const TrainTest& both) {
    std::map<std::string, int> out;
    for (const auto* set : {&both.train, &both.test})
      for (int64_t i = 0; i < set->size(); ++i) {
        out[set->files[static_cast<size_t>(i)]] = set->pixels[i][1][3][4].item<int>();
        EXPECT_EQ(set->large[i][2][19][0].item<int>(), set->pixels[i][0][0][0].item<int>());
      }
    return out;
  }
};

TEST_F(ImageCache, SecondStartDecodesNothing) {
  fill(12);
  const auto first = load(options());
  EXPECT_EQ(first.decoded, 12);
  EXPECT_EQ(first.train.size(), 9);
  EXPECT_EQ(first.test.size(), 3);
  ASSERT_NE(first.train.mapping, nullptr);
  EXPECT_EQ(first.train.large.sizes(), (std::vector<int64_t>{9, 3, 24, 24}));
  const auto second = load(options());
  EXPECT_EQ(second.decoded, 0);
  EXPECT_EQ(values(second), values(first));
  EXPECT_EQ(second.list.fingerprint(), first.list.fingerprint());
  EXPECT_EQ(values(first).at("07.png"), 70);
  // The same pixels and splits without a file.
  auto none = options();
  none.cache = CacheKind::kNone;
  const auto memory = load(none);
  EXPECT_EQ(memory.train.mapping, nullptr);
  EXPECT_EQ(memory.train.files, first.train.files);
  EXPECT_TRUE(torch::equal(memory.train.pixels, first.train.pixels));
  EXPECT_TRUE(torch::equal(memory.train.large, first.train.large));
  EXPECT_EQ(memory.list.fingerprint(), first.list.fingerprint());
}

TEST_F(ImageCache, OnlyNewAndChangedFilesAreDecoded) {
  fill(12);
  dir.write("photos/bad.png", "no image");
  EXPECT_EQ(load(options()).decoded, 13);
  EXPECT_EQ(load(options()).decoded, 0) << "a file that could not be read is not tried again";
  EXPECT_EQ(load(options()).problems.size(), 1u);
  dir.write("photos/05.png", grey_png(200) + "trailing bytes change the size");
  dir.write("photos/new.png", grey_png(222));
  fs::remove(dir / "photos/03.png");
  const auto now = load(options());
  EXPECT_EQ(now.decoded, 2);
  const auto v = values(now);
  EXPECT_EQ(v.size(), 12u);
  EXPECT_EQ(v.at("05.png"), 200);
  EXPECT_EQ(v.at("new.png"), 222);
  EXPECT_EQ(v.at("11.png"), 110);
  EXPECT_FALSE(v.contains("03.png"));
}

TEST_F(ImageCache, LimitsAndSplitsShareTheFile) {
  fill(16);
  load(options());
  auto fewer = options();
  fewer.limit = 5;
  const auto some = load(fewer);
  EXPECT_EQ(some.decoded, 0);
  EXPECT_EQ(some.train.size(), 5);
  for (const auto& [name, value] : values(some)) EXPECT_EQ(name, fmt::format("{:02}.png", value / 10));
  auto other = options();
  other.seed = 7;
  EXPECT_EQ(load(other).decoded, 0);
  EXPECT_EQ(load(options()).decoded, 0);
}

TEST_F(ImageCache, DamagedFileIsMadeAnew) {
  fill(12);
  load(options());
  const auto file = cache_file();
  ASSERT_FALSE(file.empty());
  const auto size = fs::file_size(file);
  for (const uint64_t cut : {uint64_t{0}, uint64_t{100}, uint64_t{5000}, size - 1}) {
    fs::resize_file(file, cut);
    const auto again = load(options());
    EXPECT_EQ(again.decoded, 12) << cut;
    EXPECT_EQ(values(again).at("04.png"), 40);
  }
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(static_cast<std::streamoff>(size) - 20);
  f << "damage";
  f.close();
  EXPECT_EQ(load(options()).decoded, 12);
}

TEST_F(ImageCache, WhatCouldNotBeReadIsTriedAgain) {
  // It stayed unreadable for ever: neither size nor time of a file tell that it may be opened now.
  fill(3);
  dir.write("photos/bad.png", "no image");
  const auto r = request({"00.png", "01.png", "02.png", "bad.png"}, 16);
  fs::rename(dir / "photos/01.png", dir / "away");
  const auto first = decode_images(r);
  EXPECT_EQ(first.decoded, 4);
  EXPECT_THAT(first.kept, ElementsAre(0u, 2u));
  ASSERT_EQ(first.problems.size(), 2u);
  EXPECT_THAT(first.problems[0].reason, HasSubstr("cannot be opened"));
  const auto inode = cache_inode();
  const auto second = decode_images(r);
  EXPECT_EQ(second.decoded, 1) << "bad.png was read, and its content is not tried again";
  EXPECT_THAT(second.kept, ElementsAre(0u, 2u));
  EXPECT_EQ(cache_inode(), inode) << "nothing new: the file is not written again";
  fs::rename(dir / "away", dir / "photos/01.png");
  const auto third = decode_images(r);
  EXPECT_THAT(third.kept, ElementsAre(0u, 1u, 2u));
  EXPECT_EQ(third.pixels[1][0][0][0].item<int>(), 10);
  EXPECT_EQ(third.problems.size(), 1u);
  EXPECT_EQ(decode_images(r).decoded, 0);
}

TEST_F(ImageCache, CachesWithoutDigestsOfBadFilesAreRead) {
  // As 0.1.0 wrote them.
  fill(6);
  dir.write("photos/bad.png", "no image");
  const auto first = load(options());
  const auto file = cache_file();
  ASSERT_FALSE(file.empty());
  const auto sum = [](std::string_view text) {
    return core::sha256(std::as_bytes(std::span(text.data(), text.size())));
  };
  auto content = core::read_text(file, "test");
  const auto at = content.rfind(sum("no image").substr(0, 32));
  ASSERT_NE(at, std::string::npos);
  content.replace(at - 8, 8 + 32, std::string(8, '\0'));  // its length, and itself
  uint64_t index_at = 0;
  std::memcpy(&index_at, content.data() + 40, 8);
  const uint64_t index_bytes = content.size() - index_at;
  std::memcpy(content.data() + 48, &index_bytes, 8);
  std::memcpy(content.data() + 56, sum(std::string_view(content).substr(index_at)).data(), 64);
  dir.write("root/images/" + file.filename().string(), content);
  const auto inode = cache_inode();
  const auto again = load(options());
  EXPECT_EQ(again.decoded, 1) << "bad.png alone";
  EXPECT_EQ(again.problems.size(), 1u);
  EXPECT_EQ(values(again), values(first));
  EXPECT_EQ(cache_inode(), inode);
}

// Two pictures of 2048 x 2048 with their larger copies are 64 MB, for which a file is made.
constexpr int64_t kHuge = 2048;

TEST_F(ImageCache, RoomIsNeededForTheRowsThatAreKeptToo) {
  fill(3);
  decode_images(request({"02.png"}, kHuge));
  const FreeBytes disk(1.09e9);  // enough for the two, but not beside a new copy of the third
  const auto d = decode_images(request({"00.png", "01.png"}, kHuge, CacheKind::kAuto));
  EXPECT_THAT(d.kept, ElementsAre(0u, 1u));
  EXPECT_EQ(d.mapping, nullptr);
  EXPECT_THAT(d.notes, ElementsAre(AllOf(HasSubstr("1.09 GB free"), HasSubstr("96.7 MB are needed"))));
}

TEST_F(ImageCache, AFullDiskIsDoneWithoutUnlessAFileIsAskedFor) {
  fill(2);
  const FreeBytes disk(1e12);
  const SmallFiles full(1'000'000);
  for (const auto kind : {CacheKind::kAuto, CacheKind::kMemory}) {
    const auto d = decode_images(request({"00.png", "01.png"}, kHuge, kind));
    EXPECT_THAT(d.kept, ElementsAre(0u, 1u));
    EXPECT_EQ(d.pixels[1][2][5][5].item<int>(), 10);
    EXPECT_EQ(d.mapping, nullptr);
    EXPECT_THAT(d.notes, ElementsAre(AllOf(HasSubstr("no cache file"), HasSubstr("writing failed"))));
  }
  EXPECT_THAT(error_of(
                  [&] {
                    decode_images(request({"00.png", "01.png"}, kHuge));
                  },
                  core::ExitCode::kRunFailed),
              AllOf(HasSubstr("writing failed"), HasSubstr("set data.cache to none")));
  for (const auto& e : fs::directory_iterator(dir / "root/images")) EXPECT_EQ(e.path().extension(), ".lock");
}

TEST_F(ImageCache, WithoutALockAWholeFileIsReadAndNoneIsWritten) {
  fill(3);
  const FreeBytes disk(1e12);
  decode_images(request({"00.png", "01.png"}, kHuge));
  // Nobody can take the lock: to others a lock file of another user is just as closed.
  const auto lock = cache_file().string() + ".lock";
  fs::remove(lock);
  fs::create_symlink("elsewhere", lock);
  const auto inode = cache_inode();
  for (const auto kind : {CacheKind::kAuto, CacheKind::kDisk}) {
    const auto whole = decode_images(request({"00.png", "01.png"}, kHuge, kind));
    EXPECT_EQ(whole.decoded, 0);
    EXPECT_NE(whole.mapping, nullptr);
    EXPECT_TRUE(whole.notes.empty());
  }
  const auto more = decode_images(request({"00.png", "01.png", "02.png"}, kHuge, CacheKind::kAuto));
  EXPECT_EQ(more.decoded, 1) << "the older file has the others";
  EXPECT_EQ(more.pixels[2][0][0][0].item<int>(), 20);
  EXPECT_THAT(more.notes, ElementsAre(AllOf(HasSubstr("no cache file"), HasSubstr("it is a link"))));
  EXPECT_EQ(cache_inode(), inode);
  EXPECT_THAT(error_of([&] { decode_images(request({"02.png"}, kHuge)); }, core::ExitCode::kRunFailed),
              AllOf(HasSubstr("it is a link"), HasSubstr("set data.cache to none")));
}

TEST_F(ImageCache, SmallSetsWriteNoFile) {
  fill(12);
  auto o = options();
  o.cache = CacheKind::kAuto;
  EXPECT_EQ(load(o).train.mapping, nullptr);
  EXPECT_FALSE(fs::exists(dir / "root/images"));
}

TEST_F(ImageCache, ViewsComeFromTheLargerCopy) {
  // The larger copy of a fine pattern holds more than the image: a crop of it keeps the lines apart.
  image::Pixels stripes(160, 160, 3);
  for (int y = 0; y < 160; ++y)
    for (int x = 0; x < 160; ++x)
      for (int k = 0; k < 3; ++k) stripes.row(y)[3 * x + k] = x / 2 % 2 ? 255 : 0;
  for (int i = 0; i < 4; ++i)  // what follows the picture makes them different files
    dir.write(fmt::format("photos/{}.png", i), encode(stripes, ".png") + std::to_string(i));
  auto o = options();
  o.image_size = 64;
  const auto both = load(o);
  const ViewOptions views{.flip = 0, .jitter = 0, .grayscale = 0, .noise = 0};
  const ViewMaker from_large(views, both.train);
  EXPECT_EQ(from_large.source().width, 80);
  const auto rows = torch::arange(both.train.size());
  const auto v = make_views(from_large, both.train, rows, 1, 0, 0, 0);
  EXPECT_EQ(v.sizes(), (std::vector<int64_t>{3, 3, 64, 64}));
  auto small = both.train;
  small.large = torch::Tensor();
  const auto w = make_views(ViewMaker(views, small), small, rows, 1, 0, 0, 0);
  EXPECT_GT(v.std().item<double>(), 1.5 * w.std().item<double>());
}

TEST_F(ImageCache, LoaderReadsMappedPixels) {
  fill(12);
  const auto both = load(options());
  const auto set = std::make_shared<const ImageSet>(both.train);
  auto copy = std::make_shared<ImageSet>(both.train);
  copy->pixels = copy->pixels.clone();
  copy->large = copy->large.clone();
  copy->mapping = nullptr;
  Loader a(set, {}, {.batch_size = 3, .threads = 2}), b(copy, {}, {.batch_size = 3});
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(torch::equal(a.next().view1, b.next().view1));
    set->mapping->release();  // pages come back by themselves
  }
}

TEST_F(ImageCache, FolderThatCannotBeWrittenIsSaid) {
  fill(3);
  auto o = options();
  o.data_root = dir.write("file", "not a folder");
  EXPECT_THAT(error_of([&] { load(o); }, core::ExitCode::kRunFailed), HasSubstr("data.cache"));
}

TEST_F(ImageCache, WithoutAHomeOnlyAFileThatIsAskedForIsMissed) {
  fill(3);
  auto o = options();
  o.data_root.clear();
  std::map<const char*, std::string> before;
  for (const char* name : {"HOME", "XDG_CACHE_HOME", "EBCLR_DATA"}) {
    if (const char* value = std::getenv(name)) before[name] = value;
    ::unsetenv(name);
  }
  const auto message = error_of([&] { load(o); });
  o.cache = CacheKind::kAuto;
  EXPECT_EQ(load(o).decoded, 3);
  // 64 MB are enough for a file.
  const DecodeRequest large{
      .folder = dir / "photos", .files = {{"00.png"}, {"01.png"}}, .image_size = 2048, .threads = 1};
  EXPECT_THAT(decode_images(large).notes, ElementsAre(HasSubstr("HOME is not set")));
  for (const auto& [name, value] : before) ::setenv(name, value.c_str(), 1);
  EXPECT_THAT(message, HasSubstr("--data-root"));
}

TEST_F(ImageCache, WhatAKilledWriterLeftIsSwept) {
  fill(3);
  dir.write("root/images/.ebclr-0123456789abcdef.tmp", "gigabytes");
  load(options());
  EXPECT_FALSE(fs::exists(dir / "root/images/.ebclr-0123456789abcdef.tmp"));
  int files = 0;
  for (const auto& e : fs::directory_iterator(dir / "root/images")) {
    if (e.path().extension() == ".lock") continue;
    ++files;
    EXPECT_EQ(fs::status(e).permissions() & fs::perms::others_read, fs::perms::none)
        << "pictures are private";
  }
  EXPECT_EQ(files, 1) << "the cache file alone";
}

TEST(ImageList, SplitIsKeptByFile) {
  const Scratch dir;
  for (int i = 0; i < 20; ++i) dir.write(fmt::format("{:02}.png", i), grey_png(i));
  const SourceOptions o{.source = dir.path().string(), .image_size = 16, .test_fraction = 0.2, .seed = 3};
  const auto first = load(o);
  const auto path = dir.write("list.csv.x", to_csv(first.list));
  const auto list = read_image_list(path);
  EXPECT_EQ(list.fingerprint(), first.list.fingerprint());
  // With labels, another seed and a new file the run's own split stays.
  std::string csv;
  for (int i = 0; i < 20; ++i) csv += fmt::format("{:02}.png,{}\n", i, i % 2);
  auto labelled = o;
  labelled.labels_csv = dir.write("labels.csv", csv).string();
  labelled.seed = 99;
  dir.write("new.png", grey_png(99));
  const auto later = load(labelled, {.list = &list, .rest = true});
  EXPECT_EQ(later.train.files, first.train.files);
  EXPECT_EQ(later.test.files, first.test.files);
  EXPECT_THAT(later.rest.files, ElementsAre("new.png"));
  EXPECT_EQ(later.test.classes(), 2);
  const auto changes = compare(list, later.list);
  EXPECT_THAT(changes.added, ElementsAre("new.png"));
  EXPECT_TRUE(changes.missing.empty() && changes.changed.empty());
  dir.write("07.png", grey_png(77));
  fs::remove(dir / "11.png");
  const auto text = compare(list, load(labelled, {.list = &list}).list).text();
  EXPECT_THAT(text, AllOf(HasSubstr("1 file is new (new.png)"), HasSubstr("1 file is missing (11.png)"),
                          HasSubstr("1 file has changed (07.png)")));
  // The same images elsewhere are the same images.
  const Scratch moved;
  for (int i = 0; i < 20; ++i) moved.write(fmt::format("{:02}.png", i), grey_png(i));
  auto there = o;
  there.source = moved.path().string();
  EXPECT_TRUE(compare(list, load(there, {.list = &list}).list).none());
  EXPECT_EQ(load(there, {.list = &list}).list.fingerprint(), list.fingerprint());
}

TEST(ImageList, UnreadableFilesAreNotNewLater) {
  const Scratch dir;
  for (int i = 0; i < 8; ++i) dir.write(fmt::format("{}.png", i), grey_png(i));
  dir.write("bad.png", "no image");
  const SourceOptions o{.source = dir.path().string(), .image_size = 16, .test_fraction = 0.25};
  const auto list = load(o).list;
  EXPECT_EQ(list.images.back().split, "unreadable");
  const auto later = load(o, {.list = &list});
  EXPECT_TRUE(compare(list, later.list).none()) << compare(list, later.list).text();
  EXPECT_EQ(later.list.fingerprint(), list.fingerprint());
  EXPECT_TRUE(compare(later.list, load(o, {.list = &later.list}).list).none());
  // Whoever asks for everything is told again.
  EXPECT_EQ(load(o, {.list = &list, .rest = true}).problems.size(), 1u);
}

TEST(ImageList, StrangeNamesSurvive) {
  ImageList list{{{"a,\"b\"\nc\xff.png", "train", 12, "00ff"}, {"plain.jpg", "rest", 3, ""}}};
  const Scratch dir;
  const auto read = read_image_list(dir.write("l.csv", to_csv(list)));
  ASSERT_EQ(read.images.size(), 2u);
  EXPECT_EQ(read.images[0].path, list.images[0].path);
  EXPECT_EQ(read.images[1].split, "rest");
  EXPECT_THAT(error_of([&] { read_image_list(dir.write("bad.csv", "path,split,bytes,digest\nx,train\n")); }),
              AllOf(HasSubstr("bad.csv"), HasSubstr("line 2")));
}

}  // namespace
}  // namespace ebclr::data

// libc's name, first in the line of those who answer to it.
#pragma GCC visibility push(default)
extern "C" int statvfs(const char* path, struct statvfs* out) noexcept {
  static const auto next =
      reinterpret_cast<int (*)(const char*, struct statvfs*)>(::dlsym(RTLD_NEXT, "statvfs"));
  const int rc = next(path, out);
  const double bytes = ebclr::data::free_bytes;
  if (rc == 0 && bytes >= 0)
    out->f_bavail = static_cast<fsblkcnt_t>(bytes / static_cast<double>(out->f_frsize));
  return rc;
}
#pragma GCC visibility pop
