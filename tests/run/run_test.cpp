// Run folders that somebody else made: what they say is believed only as far as their size allows.

#include "run/run.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "core/files.h"
#include "expect_error.h"
#include "temp_dir.h"

namespace ebclr::run {
namespace {

/// A run of an encoder of width 4, or of what its configuration and checkpoint are made to say.
class StrangeRun : public ::testing::Test {
 protected:
  testing::TempDir dir;
  Config config = resolve({{"test", {{"encoder.width", "4"}, {"head.out", "4"}, {"head.hidden", "4"}}}});
  Snapshot snapshot;

  void SetUp() override {
    const auto networks = nn::make_networks(config.method.encoder, config.method.head, 0);
    for (const auto& [name, tensor] : nn::state_of(*networks.encoder, "method/encoder."))
      snapshot.tensors.tensors[name] = tensor.detach();
    for (const auto& [name, tensor] : nn::state_of(*networks.head, "method/head."))
      snapshot.tensors.tensors[name] = tensor.detach();
    snapshot.small = {{"image", {3, 32, 32}}, {"method", {{"balance", 1.5}}}};
  }
  Model load() {
    core::write_atomically(dir / "config.yaml", to_yaml(config), "test");
    write_checkpoint(RunFolder{dir.path()}.checkpoints(), snapshot);
    return Run::open(dir.path()).load();
  }
  void expect_refused(const std::string& fragment) {
    testing::expect_error(
        core::ExitCode::kUsage, [&] { load(); }, "step-00000000-r0", fragment);
  }
};

TEST_F(StrangeRun, IsReadWhenItIsWhole) {
  const auto model = load();
  EXPECT_EQ(model.image_shape, (std::vector<int64_t>{3, 32, 32}));
  EXPECT_EQ(model.balance, 1.5);
}

TEST(LargeWeights, AreMostOfTheNetworks) {
  const auto config = resolve({{"test", {{"encoder.width", "4"}, {"head.out", "4"}}}});
  for (const char* arch : {"resnet18", "resnet34", "resnet50"})
    for (const int layers : {1, 2, 3}) {
      auto options = config.method;
      options.encoder.arch = arch;
      options.head.layers = layers;
      options.head.hidden = layers == 2 ? 0 : 5;
      const auto networks = nn::make_networks(options.encoder, options.head, 0);
      auto state = nn::state_of(*networks.encoder, "encoder.");
      for (const auto& item : nn::state_of(*networks.head, "head.")) state.push_back(item);
      int64_t all = 0, large = 0;
      for (const auto& [name, tensor] : state) all += tensor.numel();
      for (const auto& [name, shape] : large_weights(options.encoder, options.head)) {
        const auto it =
            std::find_if(state.begin(), state.end(), [&n = name](const auto& s) { return s.first == n; });
        ASSERT_NE(it, state.end()) << name;
        EXPECT_EQ(it->second.sizes(), torch::IntArrayRef(shape)) << name;
        large += it->second.numel();
      }
      EXPECT_GT(large * 16, all) << "a file that has these is nearly as large as the networks";
    }
}

// A few kilobytes must not make the program build a network of gigabytes before it looks at them.
TEST_F(StrangeRun, ASmallFileBuildsNoLargeNetwork) {
  config = resolve({{"test", {{"encoder.width", "256"}, {"head.out", "4"}, {"head.hidden", "4"}}}});
  expect_refused("layer4.1.conv2.weight' has shape 32x32x3x3, the configuration says 2048x2048x3x3");
  config = resolve({{"test", {{"encoder.width", "4"}, {"head.out", "4"}, {"head.hidden", "20000000"}}}});
  expect_refused("fc1.weight' has shape 4x32, the configuration says 20000000x32");
  config = resolve({{"test", {{"encoder.width", "4"}, {"head.out", "4"}, {"head.hidden", "4"}}}});
  snapshot.tensors.tensors["method/encoder.conv1.weight"] = torch::zeros({1});
  expect_refused("not that of a convolution");
}

TEST_F(StrangeRun, AStateOfOtherKindsIsRefused) {
  const auto good = snapshot.small;
  for (const auto& small : {nlohmann::json(3), nlohmann::json("x"), nlohmann::json::array({1})}) {
    snapshot.small = small;
    expect_refused("its state is incomplete");
  }
  for (const auto& image :
       {nlohmann::json("x"), nlohmann::json({3, 32, 1.5}), nlohmann::json({{3}, 32, 32})}) {
    snapshot.small = {{"image", image}};
    expect_refused("its state is not that of a run");
  }
  for (const auto& image :
       std::vector<std::vector<int64_t>>{{3, 32}, {1, 32, 32}, {3, -1, 32}, {3, 32, 1 << 20}}) {
    snapshot.small = {{"image", image}};
    expect_refused("was not trained on images of");
  }
  snapshot.small = {{"method", {{"balance", "x"}}}};
  expect_refused("its state is not that of a run");
  snapshot.small = good;
  EXPECT_NO_THROW(load());
}

}  // namespace
}  // namespace ebclr::run
