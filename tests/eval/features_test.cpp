#include "eval/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "helpers.h"
#include "image/resize.h"
#include "run/config.h"

namespace ebclr::eval {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

data::ImageSet images(int64_t n, int64_t channels, int64_t side, int64_t classes = 2) {
  data::ImageSet set;
  set.name = "toy";
  set.split = "train";
  set.labels = torch::arange(n, torch::kInt64) % classes;
  // Each class has its own brightness; noise on top.
  const auto base = 60 + 120 * set.labels.to(torch::kFloat32).view({n, 1, 1, 1}) / double(classes);
  set.pixels = (base + 15 * normal({n, channels, side, side}, 17)).clamp(0, 255).to(torch::kUInt8);
  for (int64_t k = 0; k < classes; ++k) set.class_names.push_back(fmt::format("c{}", k));
  return set;
}

nn::EncoderOptions small(int64_t channels, nn::Norm norm = nn::Norm::kNone) {
  return {.width = 4, .channels = channels, .norm = norm};
}

TEST(Features, DoNotDependOnBatchSizeOrThreads) {
  const auto set = images(23, 3, 16);
  for (auto norm : {nn::Norm::kNone, nn::Norm::kBatch}) {
    nn::Encoder encoder(small(3, norm), 1);
    const auto whole = features(encoder, set, {.batch_size = 23});
    ASSERT_EQ(whole.sizes(), (torch::IntArrayRef{23, encoder.feature_dim()}));
    const double scale = whole.abs().max().item<double>();
    const int threads = torch::get_num_threads();
    for (int t : {1, 3}) {
      torch::set_num_threads(t);
      for (int64_t batch : {1, 5, 64}) {
        const auto other = features(encoder, set, {.batch_size = batch});
        EXPECT_LT((other - whole).abs().max().item<double>(), 1e-5 * std::max(1.0, scale))
            << batch << " " << t;
      }
    }
    torch::set_num_threads(threads);
  }
}

TEST(Features, LeaveTheEncoderAsItWas) {
  const auto set = images(6, 1, 16);
  nn::Encoder encoder(small(1, nn::Norm::kBatch), 1);
  encoder.train();
  std::vector<torch::Tensor> before;
  for (const auto& b : encoder.buffers()) before.push_back(b.clone());
  const auto y = features(encoder, set);
  EXPECT_TRUE(encoder.is_training());
  EXPECT_FALSE(y.requires_grad());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(encoder.buffers()[i].equal(before[i]));
  encoder.eval();
  EXPECT_TRUE(features(encoder, set).equal(y));
  EXPECT_FALSE(encoder.is_training());
}

TEST(Features, ProjectionsComeFromTheHead) {
  const auto set = images(6, 1, 16);
  nn::Encoder encoder(small(1), 1);
  nn::Head head({.in = encoder.feature_dim(), .hidden = 16, .out = 5}, 2);
  EXPECT_EQ(features(encoder, set, {.head = &head}).size(1), 5);
}

TEST(Features, PixelsAreFlattenedToUnitRange) {
  auto set = images(2, 1, 16);
  set.pixels[0][0][0][0] = 0;
  set.pixels[0][0][0][1] = 255;
  const auto x = pixel_features(set);
  EXPECT_EQ(x.size(1), 256);
  EXPECT_FLOAT_EQ(x[0][0].item<float>(), -1);
  EXPECT_FLOAT_EQ(x[0][1].item<float>(), 1);
}

TEST(Adapt, CopiesGreyImagesForAColourEncoder) {
  const auto set = images(4, 1, 28);
  const auto adapted = adapt(set, 3, {3, 32, 32}, false);
  EXPECT_EQ(adapted.set.channels(), 3);
  for (int c = 0; c < 3; ++c) EXPECT_TRUE(adapted.set.pixels.select(1, c).equal(set.pixels.select(1, 0)));
  EXPECT_THAT(adapted.notes, ElementsAre(HasSubstr("copied to 3 channels"),
                                         HasSubstr("are 28 x 28, the encoder was trained on 32 x 32")));
  nn::Encoder encoder(small(3), 1);
  EXPECT_EQ(features(encoder, adapted.set).size(0), 4);
}

TEST(Adapt, ColourForAGreyEncoderSaysWhatIsPossible) {
  const auto set = images(4, 3, 32);
  EXPECT_THAT(error_of([&] {
                adapt(set, 1, {1, 28, 28}, false);
              }),
              HasSubstr("the encoder reads grey images and 'toy' is in colour; possible: converting them "
                        "to grey (--grayscale)"));
  const auto adapted = adapt(set, 1, {1, 32, 32}, true);
  EXPECT_EQ(adapted.set.channels(), 1);
  EXPECT_THAT(adapted.notes, ElementsAre(HasSubstr("converted to grey")));
  const auto p = set.pixels[0].to(torch::kFloat32);
  EXPECT_NEAR(adapted.set.pixels[0][0][3][5].item<float>(),
              (0.299 * p[0][3][5] + 0.587 * p[1][3][5] + 0.114 * p[2][3][5]).item<float>(), 0.51);
}

TEST(Adapt, ConvertsToTheGreyThatAPictureIsReadIn) {
  // 110 592 colours.
  constexpr int kSide = 48;
  auto set = images(kSide, 3, kSide);
  for (int r = 0; r < kSide; ++r) {
    image::Pixels picture(kSide, kSide, 3);
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        auto* p = picture.row(y) + 3 * x;
        p[0] = static_cast<uint8_t>(r * 255 / (kSide - 1));
        p[1] = static_cast<uint8_t>(y * 255 / (kSide - 1));
        p[2] = static_cast<uint8_t>(x * 255 / (kSide - 1));
      }
    set.pixels[r].copy_(
        torch::from_blob(picture.data.data(), {kSide, kSide, 3}, torch::kUInt8).permute({2, 0, 1}));
    auto grey = torch::empty({1, kSide, kSide}, torch::kUInt8);
    image::square_planes(picture, kSide, true, grey.data_ptr<uint8_t>());
    const auto one = data::select(set, torch::tensor({r}, torch::kInt64));
    EXPECT_TRUE(torch::equal(adapt(one, 1, {}, true).set.pixels[0], grey)) << r;
  }
}

TEST(Adapt, LeavesFittingSetsAloneAndRefusesTinyImages) {
  const auto set = images(4, 3, 32);
  const auto adapted = adapt(set, 3, {3, 32, 32}, false);
  EXPECT_THAT(adapted.notes, IsEmpty());
  EXPECT_TRUE(adapted.set.pixels.equal(set.pixels));
  EXPECT_THAT(error_of([] { adapt(images(4, 3, 8), 3, {}, false); }),
              HasSubstr("8 x 8; the encoder reads 16 x 16"));
}

TEST(Monitor, OfARunThatGoesOnIsDoneWithoutWhereItsProbeIsGone) {
  const auto train = images(60, 1, 16);
  auto config = run::resolve({});
  config.monitor.knn_every = 1;
  config.monitor.probe = "/nowhere/probe";
  EXPECT_NE(error_of([&] { monitor_of(config, train, {}); }), "");
  std::vector<std::string> told;
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  EXPECT_FALSE(monitor_to_resume(config, train, {}, tell));
  EXPECT_THAT(told,
              ElementsAre(AllOf(HasSubstr("goes on without its monitor"), HasSubstr("/nowhere/probe"))));
  config.monitor.probe.clear();
  EXPECT_TRUE(monitor_to_resume(config, train, {}, tell));
  EXPECT_EQ(told.size(), 1u);
}

TEST(Monitor, JudgesAndLeavesNoTrace) {
  const auto train = images(60, 1, 16), test = images(30, 1, 16);
  nn::Encoder encoder(small(1, nn::Norm::kBatch), 1);
  encoder.train();
  std::vector<torch::Tensor> before;
  for (const auto& [name, t] : nn::state_of(encoder, "")) before.push_back(t.clone());
  torch::manual_seed(3);
  const auto expected = torch::rand({4});
  torch::manual_seed(3);
  const auto monitor = make_knn_monitor(train, test, {.train = 40, .test = 20});
  const double accuracy = monitor(encoder);
  EXPECT_TRUE(torch::rand({4}).equal(expected));  // drew nothing
  EXPECT_GT(accuracy, 0.9);                       // brightness alone separates the classes
  EXPECT_EQ(monitor(encoder), accuracy);
  EXPECT_TRUE(encoder.is_training());
  size_t i = 0;
  for (const auto& [name, t] : nn::state_of(encoder, "")) EXPECT_TRUE(t.equal(before[i++])) << name;
}

TEST(Monitor, SmallUnlabelledAndTestlessSets) {
  nn::Encoder encoder(small(1), 1);
  data::ImageSet none;
  EXPECT_GT(make_knn_monitor(images(60, 1, 16), none)(encoder), 0.5);
  EXPECT_GT(make_knn_monitor(images(8, 1, 16), images(4, 1, 16))(encoder), 0.0);  // K is lowered to 8
  auto bare = images(8, 1, 16);
  bare.labels.fill_(data::kNoLabel);
  EXPECT_THAT(error_of([&] { make_knn_monitor(bare, none); }), HasSubstr("monitor.knn_every=0"));
}

TEST(Monitor, IsWhatTheConfigurationAsksFor) {
  const auto train = images(60, 1, 16), test = images(30, 1, 16);
  auto config = run::resolve({});
  EXPECT_FALSE(monitor_of(config, train, test)) << "off by default";
  config.monitor.knn_every = 1;
  config.monitor.train = 40;
  config.monitor.test = 20;
  config.train.seed = 5;
  nn::Encoder encoder(small(1), 1);
  EXPECT_EQ(monitor_of(config, train, test)(encoder),
            make_knn_monitor(train, test, {.train = 40, .test = 20, .seed = 5})(encoder));
  config.monitor.probe = "/nowhere";
  EXPECT_THAT(error_of([&] { monitor_of(config, train, test); }), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace ebclr::eval
