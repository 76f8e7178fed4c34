#include "export/export.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/files.h"
#include "core/npy.h"
#include "core/safetensors.h"
#include "expect_error.h"
#include "run/torch_file.h"
#include "temp_dir.h"

namespace ebclr::exporting {
namespace {
namespace fs = std::filesystem;

struct Nets {
  explicit Nets(nn::EncoderOptions options, nn::HeadOptions head_options = {})
      : encoder(std::make_shared<nn::Encoder>(options, 3)) {
    head_options.in = encoder->feature_dim();
    head_options.hidden = 24;
    head_options.out = 16;
    head = std::make_shared<nn::Head>(head_options, 3);
    torch::manual_seed(7);
    // BatchNorm as after training: its statistics are not those of a fresh layer.
    torch::NoGradGuard no_grad;
    for (auto* m : std::initializer_list<torch::nn::Module*>{encoder.get(), head.get()})
      for (auto& b : m->named_buffers()) {
        if (b.key().ends_with("running_mean")) b.value().uniform_(-0.3, 0.3);
        if (b.key().ends_with("running_var")) b.value().uniform_(0.5, 1.5);
      }
    encoder->eval();
    head->eval();
    references = torch::randn({20, 16});
  }
  Network network(Part part = Part::kFeatures, bool preprocess = false) {
    return {*encoder, *head, part, preprocess, references, 0.1};
  }
  std::shared_ptr<nn::Encoder> encoder;
  std::shared_ptr<nn::Head> head;
  torch::Tensor references;
};

nn::EncoderOptions small(nn::Norm norm = nn::Norm::kNone, const std::string& arch = "resnet18",
                         nn::Stem stem = nn::Stem::kCifar) {
  return {.arch = arch,
          .width = 8,
          .norm = norm,
          .activation = norm == nn::Norm::kBatch ? nn::Activation::kRelu : nn::Activation::kLeakyRelu,
          .stem = stem};
}

const Metadata kMetadata = {{"version", "1.2.3"}, {"configuration", "method:\n  name: ebclr\n"}};

struct Case {
  Format format;
  Part part;
  bool preprocess;
  nn::Norm norm;
  std::string arch = "resnet18";
  nn::Stem stem = nn::Stem::kCifar;
};

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const auto norm : {nn::Norm::kNone, nn::Norm::kBatch}) {
    for (const auto format : {Format::kOnnx, Format::kTorchscript})
      for (const auto part : {Part::kFeatures, Part::kProjection, Part::kEnergy})
        for (const bool preprocess : {false, true}) out.push_back({format, part, preprocess, norm});
    for (const auto format : {Format::kSafetensors, Format::kStateDict})
      for (const auto part : {Part::kFeatures, Part::kProjection}) out.push_back({format, part, false, norm});
  }
  out.push_back({Format::kOnnx, Part::kFeatures, false, nn::Norm::kBatch, "resnet50"});
  out.push_back({Format::kTorchscript, Part::kFeatures, false, nn::Norm::kNone, "resnet50"});
  for (const auto format : {Format::kOnnx, Format::kTorchscript, Format::kSafetensors, Format::kStateDict}) {
    out.push_back({format, Part::kFeatures, false, nn::Norm::kSws});
    out.push_back({format, Part::kFeatures, false, nn::Norm::kBatch, "resnet18", nn::Stem::kImagenet});
    out.push_back({format, Part::kFeatures, false, nn::Norm::kNone, "resnet18", nn::Stem::kPatch});
  }
  return out;
}

TEST(Export, EveryFormatComputesWhatTheNetworkDoes) {
  testing::TempDir dir;
  for (const auto& c : all_cases()) {
    if (c.format == Format::kOnnx && !has_onnx()) continue;
    SCOPED_TRACE(name(c.format) + " " + name(c.part) + (c.preprocess ? " preprocess" : "") + " " + c.arch);
    nn::HeadOptions head;
    head.hidden_norm = c.norm == nn::Norm::kBatch;
    head.output_norm = head.hidden_norm;
    head.output_affine = false;
    Nets nets(small(c.norm, c.arch, c.stem), head);
    const auto out = dir.path() / "model.bin";
    const auto result =
        export_network(nets.network(c.part, c.preprocess), c.format, kMetadata, {3, 16, 16}, out);
    EXPECT_LE(result.error, kExportTolerance);
    EXPECT_EQ(result.images, 64);
    EXPECT_EQ(result.python.size(), 3u);
    EXPECT_EQ(static_cast<int64_t>(fs::file_size(out)), result.bytes);
    EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1) << "leftovers";
  }
}

TEST(Export, AFileThatComputesSomethingElseIsNoticed) {
  // The comparison reads the bytes, not the network: change the network after writing and it must differ.
  Nets nets(small());
  const auto network = nets.network();
  const auto images = torch::randn({2, 3, 16, 16});
  const auto script = to_torchscript(network, kMetadata), state = to_state_dict(network, kMetadata),
             safe = to_safetensors(network, kMetadata),
             onnx = has_onnx() ? to_onnx(network, kMetadata) : std::string();
  const auto before = expected(network, images);
  {
    torch::NoGradGuard no_grad;
    nets.encoder->conv1->weight.mul_(1.5);
  }
  const auto after = expected(network, images);
  ASSERT_GT((before - after).abs().max().item<float>(), 1e-3);
  EXPECT_TRUE(torch::allclose(run_torchscript(script, images), before, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(run_state_dict(network, state, images), before, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(run_safetensors(network, safe, images), before, 1e-4, 1e-5));
  if (has_onnx()) {
    EXPECT_TRUE(torch::allclose(run_onnx(onnx, images), before, 1e-4, 1e-5));
  }
}

TEST(Export, ALinkIsReplacedAndNoNameIsGuessed) {
  testing::TempDir dir;
  Nets nets(small());
  std::ofstream(dir.path() / "precious") << "mine";
  // As a killed process left it, and as somebody might prepare it.
  std::ofstream(dir.path() / ".ebclr-0123456789abcdef.tmp") << "half";
  fs::create_symlink(dir.path() / "precious", dir.path() / "x");
  fs::create_symlink(dir.path() / "precious", dir.path() / (".x." + std::to_string(::getpid()) + ".part"));
  export_network(nets.network(), Format::kSafetensors, {{"run", "caf\xe9"}}, {3, 16, 16}, dir.path() / "x");
  EXPECT_EQ(core::read_text(dir.path() / "precious", "test"), "mine");
  EXPECT_FALSE(fs::is_symlink(dir.path() / "x"));
  EXPECT_FALSE(fs::exists(dir.path() / ".ebclr-0123456789abcdef.tmp")) << "it is swept";
}

TEST(Export, WhatAFormatCannotHoldIsAnError) {
  testing::TempDir dir;
  Nets nets(small());
  const auto out = dir.path() / "x";
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        export_network(nets.network(Part::kEnergy), Format::kSafetensors, {}, {3, 16, 16}, out);
      },
      "no computation");
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        export_network(nets.network(Part::kFeatures, true), Format::kStateDict, {}, {3, 16, 16}, out);
      },
      "--preprocess");
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        export_network(nets.network(), Format::kTorchscript, {}, {3, 16, 16}, dir.path());
      },
      "is a folder");
  {
    torch::NoGradGuard no_grad;
    nets.encoder->conv1->weight.fill_(std::numeric_limits<float>::quiet_NaN());
  }
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        export_network(nets.network(), Format::kTorchscript, {}, {3, 16, 16}, out);
      },
      "not finite");
  EXPECT_TRUE(fs::is_empty(dir.path())) << "a failed export left something";
}

TEST(Export, WeightsCarryTorchvisionNamesAndMetadata) {
  testing::TempDir dir;
  Nets nets(small(nn::Norm::kBatch));
  export_network(nets.network(Part::kProjection), Format::kSafetensors, kMetadata, {3, 16, 16},
                 dir.path() / "x.safetensors");
  const auto file = core::read_safetensors(dir.path() / "x.safetensors");
  EXPECT_EQ(file.metadata.at("version"), "1.2.3");
  for (const auto* name : {"conv1.weight", "bn1.running_var", "layer2.0.downsample.0.weight",
                           "layer2.0.downsample.1.num_batches_tracked", "layer4.1.bn2.bias", "head.fc2.bias"})
    EXPECT_TRUE(file.tensors.count(name)) << name;
  EXPECT_EQ(file.tensors.size(),
            nn::state_of(*nets.encoder, "").size() + nn::state_of(*nets.head, "").size());
}

// --- judges that are not ours

std::string quoted(const fs::path& p) {
  return "'" + p.string() + "'";
}

/// 64 images on which a judge's output must agree with ours to 1e-5 of the largest value.
void expect_same(const Network& network, const fs::path& dir, const torch::Tensor& images,
                 const std::string& command) {
  core::write_npy(dir / "in.npy", images);
  const auto line = command + " " + quoted(dir / "in.npy") + " " + quoted(dir / "out.npy");
  ASSERT_EQ(std::system(line.c_str()), 0) << line;
  const auto theirs = core::read_npy(dir / "out.npy"), ours = expected(network, images);
  ASSERT_EQ(theirs.sizes(), ours.sizes());
  EXPECT_LE(((theirs - ours).abs().max() / ours.abs().max()).item<double>(), 1e-5);
}

TEST(ExportJudges, PythonTorchComputesTheSame) {
  // Debian's Python, whatever else is first on the path.
  const std::string python = fs::exists("/usr/bin/python3") ? "/usr/bin/python3" : "python3";
  if (std::system((python + " -c 'import torch, numpy' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "no python3-torch: install it to let it judge the exports";
  testing::TempDir dir;
  const std::string script = python + " " EBCLR_SCRIPTS_DIR "/judge_torch.py ";
  torch::manual_seed(1);
  const auto images = torch::rand({64, 3, 20, 20}) * 2 - 1;
  const auto bytes = torch::randint(0, 256, {64, 20, 20, 3}, torch::kUInt8);
  for (const auto norm : {nn::Norm::kNone, nn::Norm::kBatch}) {
    Nets nets(small(norm));
    const auto file = dir.path() / "model.pt";
    export_network(nets.network(), Format::kStateDict, kMetadata, {3, 20, 20}, file);
    const std::string slope = norm == nn::Norm::kNone ? " 0.2" : " 0.0";
    core::write_npy(dir.path() / "in.npy", images);
    const auto line = script + "state_dict " + quoted(file) + " " + quoted(dir.path() / "in.npy") + " " +
                      quoted(dir.path() / "out.npy") + slope;
    ASSERT_EQ(std::system(line.c_str()), 0) << line;
    const auto ours = expected(nets.network(), images), theirs = core::read_npy(dir.path() / "out.npy");
    EXPECT_LE(((theirs - ours).abs().max() / ours.abs().max()).item<double>(), 1e-5);
  }
  Nets nets(small());
  export_network(nets.network(Part::kEnergy, true), Format::kTorchscript, kMetadata, {3, 20, 20},
                 dir.path() / "energy.pt");
  expect_same(nets.network(Part::kEnergy, true), dir.path(), bytes,
              script + "torchscript " + quoted(dir.path() / "energy.pt"));
}

TEST(ExportJudges, OnnxRuntimeComputesTheSame) {
  if (!has_onnx()) GTEST_SKIP() << "this build has no ONNX";
  const char* modules = std::getenv("EBCLR_ONNXRUNTIME");
  const std::string node = std::string("NODE_PATH='") + (modules ? modules : "") + "' node ";
  if (std::system((node + "-e 'require(\"onnxruntime-node\")' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP()
        << "no ONNX Runtime: `tools/install-deps --judges`, then EBCLR_ONNXRUNTIME=<its node_modules>";
  testing::TempDir dir;
  torch::manual_seed(1);
  const auto images = torch::rand({64, 3, 20, 20}) * 2 - 1;
  const auto bytes = torch::randint(0, 256, {64, 20, 20, 3}, torch::kUInt8);
  for (const auto& c : all_cases()) {
    if (c.format != Format::kOnnx) continue;
    SCOPED_TRACE(name(c.part) + (c.preprocess ? " preprocess" : ""));
    Nets nets(small(c.norm, c.arch, c.stem));
    const auto network = nets.network(c.part, c.preprocess);
    const auto file = dir.path() / "model.onnx";
    export_network(network, c.format, kMetadata, {3, 20, 20}, file);
    expect_same(network, dir.path(), c.preprocess ? bytes : images,
                node + EBCLR_SCRIPTS_DIR "/judge_onnxruntime.js " + quoted(file));
  }
}

}  // namespace
}  // namespace ebclr::exporting
