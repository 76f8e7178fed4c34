#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>

#include "core/files.h"
#include "expect_error.h"
#include "golden.h"
#include "run/run.h"
#include "temp_dir.h"

namespace ebclr::run {
namespace {

// tests/run/released_w8.pt was made by Python's torch.save (tests/run/make_released.py) with the golden
// weights of width 8; its configuration has the released code's format.
const std::string kCheckpoint = std::string(EBCLR_GOLDEN_DIR) + "/../run/released_w8.pt";
const std::string kConfig = std::string(EBCLR_GOLDEN_DIR) + "/../run/released_w8.yaml";

TEST(ImportReleased, GivesARunWithTheSameFeatures) {
  testing::TempDir dir;
  const auto notes = import_released(kCheckpoint, kConfig, dir / "run");
  EXPECT_FALSE(notes.empty());
  const auto run = Run::open(dir / "run");
  const auto model = run.load("last");
  EXPECT_EQ(run.config().method.encoder.width, 8);
  EXPECT_EQ(model.position.step, 1170);
  torch::NoGradGuard guard;
  const auto features = model.encoder->forward(testing::golden_float("net_w8_rgb32.input"));
  EXPECT_LT(testing::relative_error(features, testing::golden("net_w8_rgb32.features")), 1e-5);
}

// A state dict with torchvision's names, as torch.save writes it.
void save_torchvision(const std::filesystem::path& path, nn::Encoder& encoder) {
  c10::Dict<std::string, torch::Tensor> dict;
  for (const auto& [name, tensor] : nn::state_of(encoder, "")) dict.insert(name, tensor.detach());
  dict.insert("fc.weight", torch::zeros({10, encoder.feature_dim()}));
  dict.insert("fc.bias", torch::zeros({10}));
  const auto bytes = torch::pickle_save(c10::IValue(dict));
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

TEST(ImportTorchvision, FoldsItsNormalisationIntoTheFirstLayer) {
  testing::TempDir dir;
  nn::Encoder theirs({.width = 8,
                      .norm = nn::Norm::kBatch,
                      .activation = nn::Activation::kRelu,
                      .stem = nn::Stem::kImagenet},
                     3);
  torch::NoGradGuard guard;
  theirs.train();
  theirs.forward(torch::randn({8, 3, 64, 64}));  // running statistics that are not the first ones
  theirs.eval();
  save_torchvision(dir / "resnet18.pth", theirs);
  const auto notes = import_torchvision(dir / "resnet18.pth", dir / "run");
  EXPECT_EQ(notes.size(), 2u);
  const auto model = Run::open(dir / "run").load();
  const auto pixels = torch::rand({4, 3, 64, 64});  // [0, 1], as they normalise it
  const auto mean = torch::tensor({0.485f, 0.456f, 0.406f}).view({1, 3, 1, 1}),
             deviation = torch::tensor({0.229f, 0.224f, 0.225f}).view({1, 3, 1, 1});
  // Where the border does not reach, the stems agree to rounding.
  const auto want = theirs.forward_to_cut((pixels - mean) / deviation, 0).slice(2, 2, 14).slice(3, 2, 14);
  const auto got = model.encoder->forward_to_cut(pixels * 2 - 1, 0).slice(2, 2, 14).slice(3, 2, 14);
  EXPECT_LT(testing::relative_error(got, want), 1e-5);
}

TEST(ImportReleased, RefusesWhatDoesNotFit) {
  testing::TempDir dir;
  using core::ExitCode;
  core::write_atomically(dir / "text.pt", "no zip at all", "test");
  testing::expect_error(
      ExitCode::kUsage, [&] { import_released(dir / "text.pt", kConfig, dir / "a"); }, "text.pt",
      "torch.save");
  testing::expect_error(
      ExitCode::kUsage, [&] { import_released(dir / "none.pt", kConfig, dir / "a"); }, "no such file");
  const auto bytes = core::read_text(kCheckpoint, "test");
  core::write_atomically(dir / "cut.pt", std::string_view(bytes).substr(0, bytes.size() / 2), "test");
  testing::expect_error(
      ExitCode::kUsage, [&] { import_released(dir / "cut.pt", kConfig, dir / "a"); }, "cut.pt");
  auto config = core::read_text(kConfig, "test");
  config.replace(config.find("resnet18"), 8, "resnet34");
  core::write_atomically(dir / "other.yaml", config, "test");
  testing::expect_error(
      ExitCode::kUsage, [&] { import_released(kCheckpoint, dir / "other.yaml", dir / "a"); }, "is missing",
      "configuration");
  EXPECT_FALSE(std::filesystem::exists(dir / "a")) << "a refused import leaves nothing";
  import_released(kCheckpoint, kConfig, dir / "run");
  testing::expect_error(
      ExitCode::kUsage, [&] { import_released(kCheckpoint, kConfig, dir / "run"); }, "not empty");
}

// A stem says how wide the network is; a file that has no more than that builds none.
TEST(Import, ASmallFileBuildsNoLargeNetwork) {
  testing::TempDir dir;
  using core::ExitCode;
  using Tensors = c10::Dict<std::string, torch::Tensor>;
  const auto save = [&](const c10::IValue& value) {
    const auto bytes = torch::pickle_save(value);
    core::write_atomically(dir / "small.pt", {bytes.data(), bytes.size()}, "test");
  };
  const auto released = [&](int64_t width) {
    Tensors stem;
    stem.insert("conv1.weight", torch::zeros({width, 3, 1, 1}));
    c10::Dict<std::string, Tensors> file;
    file.insert("enc_state_dict", stem);
    file.insert("proj_state_dict", Tensors());
    save(file);
    import_released(dir / "small.pt", kConfig, dir / "a");
  };
  testing::expect_error(
      ExitCode::kUsage, [&] { released(256); }, "'layer4.1.conv2.weight' is missing");
  testing::expect_error(
      ExitCode::kUsage, [&] { released(2000); }, "small.pt: encoder.width is '2000'");
  Tensors stem;
  stem.insert("conv1.weight", torch::zeros({256, 3, 7, 7}));
  save(stem);
  testing::expect_error(
      ExitCode::kUsage, [&] { import_torchvision(dir / "small.pt", dir / "a"); },
      "'layer4.1.conv2.weight' is missing");
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
}

TEST(ImportReleased, SurvivesDamagedFiles) {
  testing::TempDir dir;
  const auto good = core::read_text(kCheckpoint, "test");
  core::Rng rng(11, core::Stream::kEval);
  const auto pickle = good.find("data.pkl");
  for (int round = 0; round < 60; ++round) {
    auto bad = good;
    for (int i = 0; i < 4; ++i) bad[pickle + rng.below(4000)] = static_cast<char>(rng.next_u32());
    core::write_atomically(dir / "bad.pt", bad, "test");
    try {
      import_released(dir / "bad.pt", kConfig, dir / ("out" + std::to_string(round)));
    } catch (const core::Error&) {
    }
  }
}

}  // namespace
}  // namespace ebclr::run
