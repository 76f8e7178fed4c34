#include "fid/inception.h"

#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <fstream>

#include "core/files.h"
#include "core/rng.h"
#include "expect_error.h"
#include "scripts.h"
#include "temp_dir.h"

namespace ebclr::fid {
namespace {
namespace fs = std::filesystem;
using testing::expect_error;
using testing::write_script;

torch::Tensor images(int64_t n, int64_t channels, int64_t side) {
  auto x = torch::empty({n, channels, side, side});
  core::fill_normal(5, 0, {x.data_ptr<float>(), static_cast<size_t>(x.numel())});
  return x.clamp(-1, 1);
}

// First feature of a network that returns the mean of what it reads.
double mean_seen(const fs::path& file, const std::string& range, const torch::Tensor& x) {
  return make_inception({.file = file, .range = range, .dimensions = 3})->features(x)[0][0].item<double>();
}

TEST(Inception, FeaturesOfAFile) {
  testing::TempDir dir;
  const auto file = write_script(dir / "net.pt", testing::kMeans);
  auto extractor = make_inception({.file = file});
  EXPECT_EQ(extractor->dimensions(), 2048);
  EXPECT_EQ(extractor->label(), "FID (Inception, 2048-d)");
  const auto x = images(70, 3, 32);  // more than one batch
  const auto f = extractor->features(x);
  ASSERT_EQ(f.sizes(), (std::vector<int64_t>{70, 2048}));
  // Order and content do not depend on how the images were split.
  EXPECT_TRUE(torch::allclose(f.narrow(0, 40, 5), extractor->features(x.narrow(0, 40, 5)), 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(f[0], f[1], 1e-3, 1e-3));
}

TEST(Inception, ReadsTheRangeThatItWasToldTo) {
  testing::TempDir dir;
  const auto file = write_script(dir / "mean.pt", R"(
def forward(self, x):
    assert x.size(1) == 3 and x.size(2) == 299 and x.size(3) == 299, "wrong size"
    return x.mean([2, 3])
)");
  const auto x = torch::full({2, 3, 20, 20}, 0.5f);
  EXPECT_NEAR(mean_seen(file, "auto", x), 0.75, 1e-5);
  EXPECT_NEAR(mean_seen(file, "0,1", x), 0.75, 1e-5);
  EXPECT_NEAR(mean_seen(file, "-1,1", x), 0.5, 1e-5);
  EXPECT_NEAR(mean_seen(file, "0,255", x), 0.75 * 255, 1e-2);
  EXPECT_NEAR(mean_seen(file, "0,1", torch::full({2, 1, 28, 28}, -1.0f)), 0, 1e-6);  // grey
  expect_error(
      core::ExitCode::kUsage, [&] { mean_seen(file, "0,2", x); }, "0,2", "choose");
}

TEST(Inception, NetworksThatResizeByThemselves) {
  testing::TempDir dir;
  const auto file = write_script(dir / "own.pt", R"(
def forward(self, img, return_features: bool = False):
    assert img.size(2) != 299, "was resized before"
    if return_features:
        return img.mean([2, 3])
    return img
)");
  EXPECT_NEAR(mean_seen(file, "auto", torch::full({2, 3, 20, 20}, 0.0f)), 127.5, 1e-3);
  EXPECT_EQ(make_inception({.file = write_script(dir / "b.pt", testing::kMeansOnRequest)})
                ->features(images(3, 1, 28))
                .size(1),
            2048);
}

TEST(Inception, FeaturesInAListOrAsMaps) {
  testing::TempDir dir;
  const auto x = images(3, 3, 20);
  const auto plain = write_script(dir / "a.pt", "def forward(self, x): return x.mean([2, 3])");
  const auto want = make_inception({.file = plain, .dimensions = 3})->features(x);
  for (const char* source :
       {"def forward(self, x): return [x.mean([2, 3])]", "def forward(self, x): return (x.mean([2, 3]),)",
        "def forward(self, x): return [x.mean([2, 3], True)]"}) {
    const auto file = write_script(dir / "b.pt", source);
    EXPECT_TRUE(torch::equal(make_inception({.file = file, .dimensions = 3})->features(x), want)) << source;
  }
}

TEST(Inception, SaysWhatIsWrongWithAFile) {
  testing::TempDir dir;
  const auto complains = [&](const fs::path& file, const auto&... fragments) {
    expect_error(
        core::ExitCode::kUsage, [&] { make_inception({.file = file}); }, file.string(), fragments...);
  };
  complains(dir / "absent.pt", "no such file");
  complains(dir.path(), "is a folder");
  ASSERT_EQ(::mkfifo((dir / "pipe.pt").c_str(), 0600), 0);
  complains(dir / "pipe.pt", "is a pipe");
  std::ofstream(dir / "text.pt") << "these are no weights\n";
  complains(dir / "text.pt", "not a TorchScript file");
  std::ofstream(dir / "empty.pt").flush();
  complains(dir / "empty.pt", "not a TorchScript file");

  const auto good = write_script(dir / "good.pt", testing::kMeans);
  const auto bytes = core::read_bytes(good, "test");
  std::ofstream(dir / "cut.pt", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size() / 2));
  complains(dir / "cut.pt", "not a TorchScript file");

  complains(write_script(dir / "small.pt", "def forward(self, x): return x.mean([2, 3])"),
            "gives [2, 3] for 2 images", "expected [2, 2048]");
  complains(write_script(dir / "logits.pt", "def forward(self, x): return torch.zeros([x.size(0), 1000])"),
            "gives [2, 1000]", "before the last layer");
  complains(write_script(dir / "map.pt", "def forward(self, x): return torch.zeros([x.size(0), 2048, 8, 8])"),
            "gives [2, 2048, 8, 8]");
  complains(write_script(dir / "pair.pt", "def forward(self, x): return (x, x)"),
            "Tuple instead of one tensor");
  complains(write_script(dir / "two.pt", "def forward(self, x, y): return x"), "fails on float images");
  complains(write_script(dir / "raise.pt", "def forward(self, x): return x.view([7])"),
            "fails on float images", "[2, 3, 299, 299]");
  complains(write_script(dir / "none.pt", "def features(self, x): return x"), "no forward");
  complains(write_script(dir / "same.pt", "def forward(self, x): return torch.ones([x.size(0), 2048])"),
            "same features for different images");
  complains(
      write_script(dir / "nan.pt", "def forward(self, x): return torch.full([x.size(0), 2048], 1.0) / 0.0"),
      "not finite");
}

TEST(Inception, WeightsWithoutCode) {
  testing::TempDir dir;
  const auto file = dir / "weights.pt";
  {  // the archive that Python's torch.save writes: a pickle and no code
    caffe2::serialize::PyTorchStreamWriter writer(file.string());
    const std::string pickle = "\x80\x02}q\x01.";
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    writer.writeEndOfFile();
  }
  expect_error(
      core::ExitCode::kUsage, [&] { make_inception({.file = file}); }, "weights.pt",
      "weights without their code", "docs/fid.md");
}

}  // namespace
}  // namespace ebclr::fid
