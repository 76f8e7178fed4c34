// idx and CIFAR files: what loads, what is rejected and how, and that damaged files never do worse.
#include <random>

#include "data/catalog.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/scratch.h"

namespace ebclr::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string be32(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

std::string idx_images(uint32_t n, uint32_t h, uint32_t w) {
  std::string s = be32(0x803) + be32(n) + be32(h) + be32(w);
  for (uint32_t i = 0; i < n * h * w; ++i) s += static_cast<char>(i * 7);
  return s;
}

std::string idx_labels(const std::vector<int>& labels) {
  std::string s = be32(0x801) + be32(static_cast<uint32_t>(labels.size()));
  for (int l : labels) s += static_cast<char>(l);
  return s;
}

TEST(Idx, ReadsPlainAndGzipAlike) {
  const Scratch dir;
  const auto content = idx_images(5, 4, 3);
  const auto plain = read_idx_images(dir.write("a", content));
  // Told by content: the name does not matter.
  const auto packed = read_idx_images(dir.write("b", gzipped(content)));
  EXPECT_EQ(plain.sizes(), (std::vector<int64_t>{5, 1, 4, 3}));
  EXPECT_EQ(plain[1][0][0][0].item<int>(), 12 * 7);
  EXPECT_EQ(plain[4][0][3][2].item<int>(), 59 * 7 % 256);
  EXPECT_TRUE(torch::equal(plain, packed));
  EXPECT_TRUE(torch::equal(read_idx_labels(dir.write("c", idx_labels({3, 0, 9})), 10),
                           torch::tensor({3, 0, 9}, torch::kInt64)));
}

TEST(Idx, SaysWhatIsWrong) {
  const Scratch dir;
  const auto images = [&](const std::string& content) {
    return error_of([&] { read_idx_images(dir.write("f", content)); });
  };
  EXPECT_THAT(images(be32(0x801) + be32(1)),
              AllOf(HasSubstr("[data.idx]"), HasSubstr((dir / "f").string()), HasSubstr("offset 0"),
                    HasSubstr("0x00000801; expected 0x00000803")));
  EXPECT_THAT(images(""), HasSubstr("ends inside the magic number"));
  EXPECT_THAT(images(be32(0x803) + be32(2)), HasSubstr("offset 8: the file ends inside the header"));
  EXPECT_THAT(images(be32(0x803) + be32(2) + be32(0) + be32(3)), HasSubstr("offset 8: dimension 1 is 0"));
  EXPECT_THAT(images(be32(0x803) + be32(2) + be32(3) + be32(70000)),
              HasSubstr("offset 12: dimension 2 is 70000"));
  const auto good = idx_images(5, 4, 3);
  EXPECT_THAT(images(good.substr(0, 40)),
              AllOf(HasSubstr("offset 16"), HasSubstr("announces 60 bytes"), HasSubstr("at most 24")));
  EXPECT_THAT(images(good + "x"), HasSubstr("offset 76: more bytes than the header announces"));
  // Four thousand million images of 16384 x 16384: refused by the header alone, plain and packed.
  const auto huge = be32(0x803) + be32(0xFFFFFFFF) + be32(16384) + be32(16384) + std::string(100, 'x');
  EXPECT_THAT(images(huge), HasSubstr("the file can hold at most 100"));
  EXPECT_THAT(images(gzipped(huge)), HasSubstr("announces"));
  EXPECT_THAT(error_of([&] { read_idx_images(dir / "none"); }), HasSubstr("no such file"));
  EXPECT_THAT(error_of([&] { read_idx_images(dir.path()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of([&] {
                read_idx_labels(dir.write("l", idx_labels({3, 10})), 10);
              }),
              HasSubstr("offset 9: label 10; expected 0 to 9"));
}

TEST(Idx, CountsOfImagesAndLabelsMustAgree) {
  const Scratch dir;
  dir.write("train-images-idx3-ubyte", idx_images(3, 2, 2));
  dir.write("train-labels-idx1-ubyte.gz", gzipped(idx_labels({1, 2})));
  EXPECT_THAT(error_of([&] { read_idx_set(dir.path(), "x", "train", std::vector<std::string>(10, "c")); }),
              AllOf(HasSubstr("train-labels-idx1-ubyte.gz: offset 4: 2 labels; expected 3"),
                    HasSubstr("train-images")));
}

TEST(Idx, EveryTruncationIsRejected) {
  const Scratch dir;
  const auto plain = idx_images(5, 4, 3), packed = gzipped(plain);
  for (const auto& content : {plain, packed})
    for (size_t n = 0; n < content.size(); ++n)
      ASSERT_NE(error_of([&] { read_idx_images(dir.write("f", content.substr(0, n))); }), "") << n;
}

TEST(Idx, DamagedFilesAreRejectedOrUnharmed) {
  const Scratch dir;
  const auto plain = idx_images(5, 4, 3), packed = gzipped(plain);
  const auto expected = read_idx_images(dir.write("good", plain));
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    auto header = plain;
    header[random() % 16] ^= static_cast<char>(1 + random() % 255);
    ASSERT_NE(error_of([&] { read_idx_images(dir.write("f", header)); }), "");
    auto content = packed;
    content[random() % content.size()] ^= static_cast<char>(1 << random() % 8);
    torch::Tensor got;
    if (error_of([&] { got = read_idx_images(dir.write("g", content)); }).empty()) {
      ASSERT_TRUE(torch::equal(got, expected)) << i;
    }
  }
}

// n records; labels count up, pixel bytes equal the record's number.
std::string cifar(int n, int label_bytes) {
  std::string s;
  for (int i = 0; i < n; ++i) {
    if (label_bytes == 2) s += static_cast<char>(i % 20);
    s += static_cast<char>(label_bytes == 2 ? i % 100 : i % 10);
    s += std::string(3072, static_cast<char>(i));
  }
  return s;
}

void write_cifar10(const Scratch& dir, const std::string& folder) {
  for (int b = 1; b <= 5; ++b) dir.write(folder + "/data_batch_" + std::to_string(b) + ".bin", cifar(b, 1));
  dir.write(folder + "/test_batch.bin", cifar(4, 1));
}

TEST(Cifar, ReadsAnyWholeNumberOfRecords) {
  const Scratch dir;
  write_cifar10(dir, "c");
  const auto train = read_cifar10(dir / "c", "train"), test = read_cifar10(dir / "c", "test");
  EXPECT_EQ(train.size(), 15);
  EXPECT_EQ(test.size(), 4);
  EXPECT_EQ(train.labels[14].item<int64_t>(), 4);
  EXPECT_EQ(train.pixels[14][2][31][31].item<int>(), 4);
  EXPECT_EQ(train.class_names[9], "truck");
}

TEST(Cifar, Keeps100FineAnd20CoarseLabels) {
  const Scratch dir;
  dir.write("train.bin", cifar(120, 2));
  dir.write("test.bin", cifar(3, 2));
  const auto fine = read_cifar100(dir.path(), "train"), coarse = read_cifar100(dir.path(), "train", true);
  EXPECT_EQ(fine.classes(), 100);
  EXPECT_EQ(fine.labels[57].item<int64_t>(), 57);
  EXPECT_EQ(fine.coarse_labels[57].item<int64_t>(), 17);
  EXPECT_EQ(fine.class_names[0], "apple");
  EXPECT_EQ(fine.class_names[99], "worm");
  EXPECT_EQ(coarse.classes(), 20);
  EXPECT_TRUE(torch::equal(coarse.labels, fine.coarse_labels));
  EXPECT_EQ(coarse.class_names[19], "vehicles_2");
}

TEST(Cifar, SaysWhatIsWrong) {
  const Scratch dir;
  write_cifar10(dir, "c");
  const auto train = [&] { return error_of([&] { read_cifar10(dir / "c", "train"); }); };
  dir.write("c/data_batch_3.bin", cifar(3, 1).substr(0, 7000));
  EXPECT_THAT(train(), AllOf(HasSubstr("[data.cifar]"), HasSubstr("data_batch_3.bin: offset 6146"),
                             HasSubstr("ends after 7000 bytes"), HasSubstr("3073-byte records")));
  dir.write("c/data_batch_3.bin", "");
  EXPECT_THAT(train(), HasSubstr("at least one"));
  auto bad = cifar(3, 1);
  bad[2 * 3073] = 10;
  dir.write("c/data_batch_3.bin", bad);
  EXPECT_THAT(train(), HasSubstr("data_batch_3.bin: offset 6146: label 10; expected 0 to 9"));
  std::filesystem::remove(dir / "c/data_batch_3.bin");
  EXPECT_THAT(train(), AllOf(HasSubstr("data_batch_3.bin: no such file"), HasSubstr("ebclr data get")));
  auto coarse = cifar(2, 2);
  coarse[3074] = 20;
  dir.write("train.bin", coarse);
  EXPECT_THAT(error_of([&] { read_cifar100(dir.path(), "train"); }),
              HasSubstr("offset 3074: coarse label 20; expected 0 to 19"));
  coarse[3074] = 0;
  coarse[1] = 100;
  dir.write("train.bin", coarse);
  EXPECT_THAT(error_of([&] { read_cifar100(dir.path(), "train"); }),
              HasSubstr("offset 1: fine label 100; expected 0 to 99"));
}

TEST(Cifar, EveryTruncationIsRejected) {
  const Scratch dir;
  const auto whole = cifar(2, 2);
  for (size_t n = 0; n < whole.size(); n += n < 40 || n + 40 > whole.size() ? 1 : 61) {
    if (n == 3074) continue;  // one whole record
    ASSERT_NE(error_of([&] {
                dir.write("train.bin", whole.substr(0, n));
                read_cifar100(dir.path(), "train");
              }),
              "")
        << n;
  }
}

TEST(Catalog, LoadsNamedSetsAndFindsForeignFolders) {
  const Scratch dir;
  EXPECT_THAT(error_of([&] { load({.source = "cifar10", .data_root = dir.path()}); }),
              HasSubstr("run: ebclr data get cifar10"));
  EXPECT_THAT(error_of([&] { load({.source = "cifar100-coarse", .data_root = dir.path()}); }),
              HasSubstr("run: ebclr data get cifar100"));
  write_cifar10(dir, "cifar-10-batches-bin");  // as its archive unpacks
  const auto d = load({.source = "cifar10", .data_root = dir.path(), .limit = 10, .limit_test = 2});
  EXPECT_EQ(d.train.size(), 10);
  EXPECT_EQ(d.test.size(), 2);
  bool present = false, absent = false;
  for (const auto& e : catalog(dir.path())) {
    present |= e.name == "cifar10" && e.present && e.folder == dir / "cifar-10-batches-bin";
    absent |= e.name == "mnist" && !e.present;
  }
  EXPECT_TRUE(present && absent);
}

TEST(Catalog, KnowsWhatLoadingWillGive) {
  const Scratch dir;
  write_cifar10(dir, "cifar10");
  for (const char* split : {"train", "t10k"}) {
    dir.write(std::string("mnist/") + split + "-images-idx3-ubyte", idx_images(2, 28, 28));
    dir.write(std::string("mnist/") + split + "-labels-idx1-ubyte", idx_labels({3, 4}));
  }
  for (const char* name : {"a", "b", "c"})
    dir.write(std::string("photos/") + name + ".ppm", "P6 2 2 255\n" + std::string(12, 'x'));
  std::vector<SourceOptions> sources;
  for (const char* name : {"cifar10", "mnist", "shapes", "shapes28", "shapes-gray", "shapes28-gray"})
    sources.push_back({.source = name});
  sources.push_back({.source = "shapes28", .image_size = 48, .grayscale = true});
  sources.push_back({.source = (dir / "photos").string()});
  sources.push_back({.source = (dir / "photos").string(), .image_size = 24, .grayscale = true});
  for (auto& o : sources) {
    o.data_root = dir.path();
    o.limit = o.limit_test = 2;
    const auto train = load(o).train;
    EXPECT_EQ(shape_of(o).channels, train.channels()) << o.source;
    EXPECT_EQ(shape_of(o).side, train.height()) << o.source;
  }
  for (const auto& e : catalog(dir.path())) {
    const auto shape = shape_of({.source = e.name});
    EXPECT_EQ(shape.channels, e.channels) << e.name;
    EXPECT_EQ(shape.side, e.side) << e.name;
    EXPECT_EQ(train_images(e.name), e.train) << e.name;
    EXPECT_EQ(e.images, e.name == "cifar100-coarse" ? "cifar100" : e.name);
  }
  EXPECT_EQ(test_images("fmnist"), 10000);
  EXPECT_EQ(test_images("shapes"), 0) << "as many as asked for";
  EXPECT_EQ(test_images((dir / "photos").string()), 0);
}

TEST(Catalog, ValidationImagesComeFromTrainAndLeaveIt) {
  const Scratch dir;
  write_cifar10(dir, "cifar10");
  const auto whole = load({.source = "cifar10", .data_root = dir.path()});
  const auto split = load({.source = "cifar10", .data_root = dir.path(), .seed = 3, .validation = 5});
  EXPECT_EQ(split.train.size(), 10);
  EXPECT_EQ(split.test.size(), 5);
  EXPECT_EQ(split.test.split, "validation");
  const auto sorted = [](const torch::Tensor& pixels) {
    return std::get<0>(pixels.flatten(1).select(1, 0).sort());
  };
  EXPECT_TRUE(
      torch::equal(sorted(torch::cat({split.train.pixels, split.test.pixels})), sorted(whole.train.pixels)));
  EXPECT_EQ(load({.source = "cifar10", .data_root = dir.path(), .limit = 4, .validation = 5}).train.size(),
            4);
  EXPECT_THAT(error_of([&] { load({.source = "cifar10", .data_root = dir.path(), .validation = 15}); }),
              HasSubstr("validation is 15"));
  EXPECT_THAT(error_of([&] { load({.source = "shapes", .validation = 5}); }), HasSubstr("shapes"));
}

TEST(Catalog, RejectsWhatDoesNotApply) {
  const Scratch dir;
  write_cifar10(dir, "cifar10");
  const auto message = [&](SourceOptions o) {
    o.data_root = dir.path();
    return error_of([&] { load(o); });
  };
  EXPECT_THAT(message({.source = "cifar01"}), HasSubstr("did you mean cifar10?"));
  EXPECT_THAT(message({.source = ""}), HasSubstr("(empty name)"));
  EXPECT_THAT(message({.source = "shapes99"}), HasSubstr("neither a known set nor a folder"));
  EXPECT_THAT(message({.source = "cifar10", .image_size = 64}),
              HasSubstr("image_size 64 does not apply to cifar10"));
  EXPECT_THAT(message({.source = "cifar10", .grayscale = true}), HasSubstr("grayscale"));
  EXPECT_THAT(message({.source = "cifar10", .limit = -1}), HasSubstr("limit is -1"));
  EXPECT_THAT(message({.source = "cifar10", .test_fraction = std::nan("")}),
              HasSubstr("test_fraction is nan"));
  EXPECT_THAT(message({.source = "shapes", .image_size = 5}), HasSubstr("image size is 5"));
}

TEST(Catalog, RootComesFromTheEnvironment) {
  const char* before = std::getenv("EBCLR_DATA");
  const std::string saved = before ? before : "";
  ::setenv("EBCLR_DATA", "/some/where", 1);
  EXPECT_EQ(default_data_root(), "/some/where");
  before ? ::setenv("EBCLR_DATA", saved.c_str(), 1) : ::unsetenv("EBCLR_DATA");
}

}  // namespace
}  // namespace ebclr::data
