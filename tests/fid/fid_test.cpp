#include "fid/fid.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "data/catalog.h"
#include "density/samples.h"
#include "expect_error.h"
#include "fid/frechet.h"
#include "scripts.h"
#include "temp_dir.h"
#include "train/trainer.h"

namespace ebclr::fid {
namespace {
namespace fs = std::filesystem;
using testing::expect_error;

/// A run of a few steps and its folder, made once for all tests here.
class FrechetOfRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new testing::TempDir;
    const auto config = run::resolve({{"test",
                                       {{"data.source", "shapes"},
                                        {"data.limit", "40"},
                                        {"encoder.width", "8"},
                                        {"head.out", "16"},
                                        {"buffer.size", "30"},
                                        {"sampler.steps", "2"},
                                        {"train.batch_size", "8"},
                                        {"train.epochs", "1"},
                                        {"log.samples_every", "0"}}}});
    const auto images = std::make_shared<const data::ImageSet>(data::load(config.data).train);
    train::Observer observer;
    const std::atomic<bool> go_on{false};
    train::Trainer({.folder = {*dir_ / "run"}, .config = config}, images, observer).run(go_on);
  }
  static void TearDownTestSuite() { delete dir_; }

  static run::Run open() { return run::Run::open(*dir_ / "run"); }
  static FrechetOptions options() {
    FrechetOptions o;
    o.samples = 70;
    o.steps = 3;
    o.reference_images = 120;
    o.marginal_views = 16;
    o.limit = 400;
    o.classifier = {.width = 8, .images = 100, .epochs = 1, .batch_size = 16};
    o.data_root = dir_->path();
    return o;
  }
  static bool noted(const FrechetResult& r, const std::string& fragment) {
    return std::any_of(r.notes.begin(), r.notes.end(),
                       [&](const std::string& n) { return n.find(fragment) != std::string::npos; });
  }

  static testing::TempDir* dir_;
};
testing::TempDir* FrechetOfRun::dir_ = nullptr;

TEST_F(FrechetOfRun, WithTheClassifier) {
  const auto r = frechet_of_run(open(), options());
  EXPECT_EQ(r.label, "Frechet distance on shapes classifier features (64-d)");
  EXPECT_FALSE(r.inception);
  EXPECT_EQ(r.label.find("FID"), std::string::npos);
  EXPECT_EQ(r.samples, 70);
  EXPECT_EQ(r.references, 120);
  EXPECT_EQ(r.reference_sources, 120);
  EXPECT_EQ(r.floor_sources, 70);
  EXPECT_EQ(r.dimensions, 64);
  EXPECT_EQ(r.data, "shapes");
  EXPECT_EQ(r.against, "views");
  EXPECT_EQ(r.grid.sizes(), (std::vector<int64_t>{64, 3, 32, 32}));
  EXPECT_GT(r.floor, 0);
  EXPECT_GT(r.distance, 0);
  EXPECT_GT(r.ceiling, 3 * r.floor);
  EXPECT_LT(r.start, r.ceiling);
  EXPECT_GE(r.classifier_accuracy, 0);
  EXPECT_LE(r.classifier_accuracy, 1);
  EXPECT_TRUE(fs::exists(*dir_ / "fid"));
  const auto again = frechet_of_run(open(), options());
  EXPECT_TRUE(again.classifier_cached);
  EXPECT_NEAR(again.distance, r.distance, 1e-3 * r.distance);
  EXPECT_NEAR(again.floor, r.floor, 1e-3 * r.floor);
  EXPECT_TRUE(torch::allclose(again.grid, r.grid, 1e-4, 1e-4));
}

TEST_F(FrechetOfRun, WithAnInceptionFile) {
  auto o = options();
  // 2048 dimensions are inception_test.cpp's; their eigenvalues take seconds.
  o.inception = testing::write_script(
      *dir_ / "net.pt", "def forward(self, x): return torch.adaptive_avg_pool2d(x, [5, 5]).flatten(1)");
  o.inception_dimensions = 75;
  const auto r = frechet_of_run(open(), o);
  EXPECT_EQ(r.label, "FID (Inception, 75-d)");
  EXPECT_TRUE(r.inception);
  EXPECT_TRUE(std::isnan(r.classifier_accuracy));
  EXPECT_TRUE(noted(r, "70 images are not more than the 75 dimensions"));
  EXPECT_GT(r.ceiling, r.floor);
  // The file is looked at before anything else is done.
  o.inception = *dir_ / "absent.pt";
  o.data = "no such set";
  expect_error(
      core::ExitCode::kUsage, [&] { frechet_of_run(open(), o); }, "absent.pt");
}

// With the pixels' means as features the distances can be computed again from images drawn by other means.
TEST_F(FrechetOfRun, MeasuresWhatItSays) {
  auto o = options();
  o.samples = 300;  // more than one chunk
  o.against = "images";
  o.reference_images = 60;
  o.steps = 0;
  o.init = "uniform";
  o.inception = testing::write_script(*dir_ / "three.pt", "def forward(self, x): return x.mean([2, 3])");
  o.inception_dimensions = 3;
  o.inception_range = "-1,1";
  const auto r = frechet_of_run(open(), o);
  EXPECT_EQ(r.distance, r.start);  // no steps
  EXPECT_EQ(r.energy_start, r.energy_end);
  EXPECT_EQ(r.floor_sources, 200);  // half of 400
  EXPECT_TRUE(noted(r, "200 images only"));
  // Means of uniform noise over 1024 pixels: mean 0, variance 1/3072; against means of the images.
  const auto means = data::to_unit_range(data::load({.source = "shapes", .limit = 400}).train.pixels)
                         .to(torch::kFloat64)
                         .mean({2, 3});
  Moments moments;
  moments.add(means);
  const Gaussian noise{torch::zeros({3}, torch::kFloat64), torch::eye(3, torch::kFloat64) / 3072.0, 2};
  const double want = FrechetReference(moments.gaussian()).distance(noise);
  EXPECT_NEAR(r.distance, want, 0.35 * want);  // 60 of the 400 images
  EXPECT_NEAR(r.ceiling, r.distance, 0.05 * want);
  EXPECT_LT(r.floor, 0.2 * want);
}

TEST_F(FrechetOfRun, FloorAndReferenceShareNoImage) {
  auto o = options();
  o.against = "images";
  o.samples = o.reference_images = 200;  // together all 400
  o.steps = 0;
  o.inception = testing::write_script(*dir_ / "means.pt", "def forward(self, x): return x.mean([2, 3])");
  o.inception_dimensions = 3;
  const auto r = frechet_of_run(open(), o);
  EXPECT_EQ(r.references + r.floor_sources, 400);
  EXPECT_GT(r.floor, 1e-7);  // the same images would be at zero
}

TEST_F(FrechetOfRun, SmallSetsShowImagesMoreThanOnce) {
  auto o = options();
  o.limit = 40;
  o.inception = testing::write_script(*dir_ / "means.pt", "def forward(self, x): return x.mean([2, 3])");
  o.inception_dimensions = 3;
  const auto r = frechet_of_run(open(), o);
  EXPECT_EQ(r.references, 120);
  EXPECT_EQ(r.reference_sources, 20);
  EXPECT_EQ(r.floor_sources, 20);
  EXPECT_TRUE(noted(r, "120 reference views show only 20 different images"));
  o.against = "images";
  const auto plain = frechet_of_run(open(), o);
  EXPECT_EQ(plain.references, 20);
  EXPECT_TRUE(noted(plain, "20 reference images instead of 120"));
}

TEST_F(FrechetOfRun, ChainsOfTheBuffer) {
  auto o = options();
  o.init = "buffer";
  const auto r = frechet_of_run(open(), o);
  EXPECT_EQ(r.samples, 30);
  EXPECT_EQ(r.grid.size(0), 30);
  EXPECT_TRUE(noted(r, "holds 30 chains"));
}

TEST_F(FrechetOfRun, SaysWhatIsWrong) {
  const auto complains = [&](const std::function<void(FrechetOptions&)>& change, const auto&... fragments) {
    auto o = options();
    change(o);
    expect_error(
        core::ExitCode::kUsage, [&] { frechet_of_run(open(), o); }, fragments...);
  };
  complains([](auto& o) { o.samples = 1; }, "1 samples");
  complains([](auto& o) { o.reference_images = 1; }, "1 reference images");
  complains([](auto& o) { o.steps = -1; }, "-1 steps");
  complains([](auto& o) { o.init = "zero"; }, "zero", "data, uniform or buffer");
  complains([](auto& o) { o.against = "all"; }, "all", "views or images");
  complains([](auto& o) { o.data = "shapes28-gray"; }, "3 x 32 x 32", "1 x 28 x 28", "--inception");
  complains([](auto& o) { o.checkpoint = "99"; }, "no checkpoint of epoch 99");
}

TEST_F(FrechetOfRun, ProgressMayEndTheWork) {
  for (const std::string where : {"training a classifier", "measuring real", "measuring noise", "sampling"}) {
    auto o = options();
    o.classifier.seed = 100 + where.size();  // not kept yet
    bool reached = false;
    const eval::Progress stop = [&](const std::string& what, double share) {
      EXPECT_GE(share, 0);
      EXPECT_LE(share, 1);
      if (!what.starts_with(where)) return;
      reached = true;
      throw core::Error(core::ExitCode::kInterrupted, "test", "stopped");
    };
    expect_error(
        core::ExitCode::kInterrupted, [&] { frechet_of_run(open(), o, stop); }, "stopped");
    EXPECT_TRUE(reached) << where;
  }
}

TEST(Quantise, IsWhatEightBitsHold) {
  const auto x = torch::tensor({-7.0f, -1.0f, -0.9961f, 0.0f, 0.3f, 1.0f, 1.2f});
  const auto q = quantise(x);
  const auto bytes = ((q + 1) * 127.5f).round();
  EXPECT_TRUE(torch::equal(data::to_unit_range(bytes.to(torch::kUInt8)), q));
  EXPECT_EQ(q[0].item<float>(), -1);
  EXPECT_EQ(q[6].item<float>(), 1);
  EXPECT_LE((q - x.clamp(-1, 1)).abs().max().item<float>(), 1.001f / 255);
  EXPECT_TRUE(torch::equal(quantise(q), q));
  EXPECT_EQ(x[0].item<float>(), -7);  // a copy
}

}  // namespace
}  // namespace ebclr::fid
