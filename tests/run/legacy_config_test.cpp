#include "run/legacy_config.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace ebclr::run {
namespace {

// The released code's format with its values for CIFAR-10, batch 128.
const char* const kEbclr = R"(temperature: 0.1
normalize: true
bs: 128
lmda1: 0.002
lmda2: 0.2
epochs: 200
p_iter: 320
s_epoch: 5
save_buffer: true
data: {data_dir : "./data", dataset : "cifar10", data_ratio : 1.0}
sgld: {iter: 11, lr: 0.06, min_std: 0.02, max_std: 0.07, threshold: 4.0, tau: 1.5}
buffer: {CD_ratio: 1.0, size: 40000, rho: 0.3, bs: 256}
optim: {optimizer: "adam", init_lr: 0.0003, lr_schedule: "const"}
net: {encoder: "resnet34", use_bn: false, use_sn: false, use_wn: false, act: "lrelu", proj_dim: 64, nc: 3}
t:
  crop_scale: {min: 0.1, max: 0.9}
  flip_p : 0.4
  jitter: {b: 0.7, c: 0.6, s: 0.5, h: 0.15}
  jitter_p : 0.75
  gray_p : 0.25
  blur_scale : 0.1
  noise_std : 0.04
)";

Config from_legacy(const std::string& yaml, std::vector<std::string>& warnings) {
  return resolve({parse_layer(yaml, "old.yaml", warnings)});
}

TEST(LegacyConfig, EveryEbclrKeyLandsWhereItBelongs) {
  std::vector<std::string> warnings;
  const auto c = from_legacy(kEbclr, warnings);
  const auto& e = c.method.ebclr;
  EXPECT_EQ(c.method.name, "ebclr");
  EXPECT_EQ(e.objective.tau, 0.1);
  EXPECT_EQ(e.objective.output_l2, 0.002);
  EXPECT_EQ(e.objective.lambda, 0.2);
  EXPECT_EQ(c.train.batch_size, 128);
  EXPECT_EQ(c.train.epochs, 200);
  EXPECT_EQ(c.checkpoint.keep_every, 5);
  EXPECT_EQ(e.sampler.steps, 11);
  EXPECT_EQ(e.sampler.step_size, 0.06);
  EXPECT_EQ(e.sampler.sigma_min, 0.02);
  EXPECT_EQ(e.sampler.sigma_max, 0.07);
  EXPECT_EQ(e.sampler.decay, 4);
  EXPECT_EQ(e.sampler.clamp, 1.5);
  EXPECT_EQ(e.buffer.size, 40000);
  EXPECT_EQ(e.buffer.rho, 0.3);
  EXPECT_EQ(e.proposal, methods::Proposal::kData);
  EXPECT_EQ(c.optimizer.lr, 0.0003);
  EXPECT_EQ(c.method.encoder.arch, "resnet34");
  EXPECT_EQ(c.method.encoder.norm, nn::Norm::kNone);
  EXPECT_EQ(c.method.head.out, 64);
  EXPECT_EQ(c.data.source, "cifar10");
  EXPECT_EQ(c.views.crop_min, 0.1);
  EXPECT_EQ(c.views.crop_max, 0.9);
  EXPECT_EQ(c.views.flip, 0.4);
  EXPECT_EQ(c.views.brightness, 0.7);
  EXPECT_EQ(c.views.contrast, 0.6);
  EXPECT_EQ(c.views.saturation, 0.5);
  EXPECT_EQ(c.views.hue, 0.15);
  EXPECT_EQ(c.views.jitter, 0.75);
  EXPECT_EQ(c.views.grayscale, 0.25);
  EXPECT_EQ(c.views.blur, 1);
  EXPECT_EQ(c.views.noise, 0.04);
  EXPECT_FALSE(warnings.empty()) << "data_dir and buffer.bs have no equivalent and are named";
}

TEST(LegacyConfig, RivalsAreToldApartByTheirKeys) {
  const std::string common = R"(
epochs : 200
bs : 256
p_epoch : 5
s_epoch : 5
data: {data_dir : "./data", dataset : "fmnist", data_ratio : 1.0}
optim: {optimizer: "sgd", init_lr: 0.03, lr_schedule: "const", weight_decay: 0.0001}
net: {encoder : "resnet18", use_bn : true, use_sn : false, use_wn : false, act : "relu", proj_dim : 256, nc : 1}
t:
  crop_scale: {min: 0.08, max: 1.0}
)";
  std::vector<std::string> w;
  const auto moco = from_legacy("temperature : 0.07\nqueue_size : 65536\nmomentum : 0.999" + common, w);
  EXPECT_EQ(moco.method.name, "moco");
  EXPECT_EQ(moco.method.moco.queue, 65536);
  EXPECT_EQ(moco.method.moco.momentum, 0.999);
  EXPECT_EQ(moco.method.moco.temperature, 0.07);
  EXPECT_EQ(moco.method.encoder.norm, nn::Norm::kBatch);
  EXPECT_EQ(moco.optimizer.kind, OptimizerKind::kSgd);
  const auto byol = from_legacy("momentum : 0.9" + common, w);
  EXPECT_EQ(byol.method.name, "byol");
  EXPECT_EQ(byol.method.byol.momentum, 0.9);
  EXPECT_EQ(from_legacy("temperature : 0.5" + common, w).method.name, "simclr");
  EXPECT_EQ(from_legacy(common, w).method.name, "simsiam");
}

TEST(LegacyConfig, WhatCannotBeDoneIsAnError) {
  using core::ExitCode;
  const auto with = [](std::string from_text, const std::string& to_text) {
    std::string yaml = kEbclr;
    const auto at = yaml.find(from_text);
    yaml.replace(at, from_text.size(), to_text);
    return yaml;
  };
  std::vector<std::string> w;
  testing::expect_error(
      ExitCode::kUsage, [&] { from_legacy(with("use_sn: false", "use_sn: true"), w); }, "spectral norm");
  testing::expect_error(
      ExitCode::kUsage, [&] { from_legacy(with("use_wn: false", "use_wn: true"), w); }, "weight norm");
  testing::expect_error(
      ExitCode::kUsage, [&] { from_legacy(with("normalize: true", "normalize: false"), w); }, "normalize");
  testing::expect_error(
      ExitCode::kUsage, [&] { from_legacy(with("CD_ratio: 1.0", "CD_ratio: 0.5"), w); }, "CD_ratio");
  testing::expect_error(
      ExitCode::kUsage, [&] { from_legacy(with("lmda2: 0.2", "lmda3: 0.2"), w); }, "lmda3",
      "did you mean 'lmda");
  testing::expect_error(
      ExitCode::kUsage, [&] { from_legacy(with("lr_schedule: \"const\"", "lr_schedule: \"step\""), w); },
      "const or cosine");
}

TEST(LegacyConfig, WithoutCdRatioChainsStartUniform) {
  std::string yaml = kEbclr;
  yaml.replace(yaml.find("CD_ratio: 1.0, "), 15, "");
  std::vector<std::string> w;
  EXPECT_EQ(from_legacy(yaml, w).method.ebclr.proposal, methods::Proposal::kUniform);
}

}  // namespace
}  // namespace ebclr::run
