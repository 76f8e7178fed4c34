#include "run/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/files.h"
#include "expect_error.h"
#include "run/shipped.h"
#include "temp_dir.h"

namespace ebclr::run {
namespace {
using core::ExitCode;
using testing::expect_error;

Config from(const std::string& yaml) {
  std::vector<std::string> warnings;
  return resolve({parse_layer(yaml, "x.yaml", warnings)});
}

TEST(Config, DefaultsAreThePapers) {
  const auto c = resolve({});
  EXPECT_EQ(c.method.name, "ebclr");
  EXPECT_EQ(c.method.ebclr.objective.tau, 0.1);
  EXPECT_EQ(c.method.ebclr.objective.lambda, 0.1);
  EXPECT_EQ(c.method.ebclr.objective.output_l2, 0.001);
  EXPECT_EQ(c.method.ebclr.buffer.size, 50000);
  EXPECT_EQ(c.method.ebclr.sampler.steps, 10);
  EXPECT_EQ(c.method.ebclr.sampler.step_size, 0.05);
  EXPECT_EQ(c.method.ebclr.sampler.clamp, 1.0);
  EXPECT_EQ(c.method.ebclr.sampler.decay, 3);
  EXPECT_EQ(c.method.ebclr.sampler.sigma_min, 0.01);
  EXPECT_EQ(c.method.ebclr.sampler.sigma_max, 0.05);
  EXPECT_EQ(c.method.ebclr.sampler.precision, ebm::Precision::kFloat);
  EXPECT_EQ(c.method.head.out, 128);
  EXPECT_EQ(c.views.noise, 0.03);
  EXPECT_EQ(c.optimizer.kind, OptimizerKind::kAdam);
}

TEST(Config, PrecisionOfChainsIsStoredWithTheRun) {
  const auto c = from("sampler: {precision: bfloat16}");
  EXPECT_EQ(c.method.ebclr.sampler.precision, ebm::Precision::kBfloat16);
  EXPECT_EQ(from(to_yaml(c)).method.ebclr.sampler.precision, ebm::Precision::kBfloat16);
  testing::expect_error(
      core::ExitCode::kUsage, [] { from("sampler: {precision: half}"); }, "bfloat16");
}

TEST(Config, LearningRateFollowsThePapersRule) {
  EXPECT_EQ(from("train: {batch_size: 128}").effective_lr(), 2e-4);
  EXPECT_EQ(from("train: {batch_size: 64}").effective_lr(), 1e-4);
  EXPECT_EQ(from("method: {name: simclr}").effective_lr(), 0.03);
  EXPECT_EQ(from("method: {name: byol}\ntrain: {batch_size: 64}").effective_lr(), 0.0075);
  EXPECT_EQ(from("optimizer: {lr: 0.5}").effective_lr(), 0.5);
  const auto supervised = from("method: {name: supervised}");
  EXPECT_EQ(from("method: {name: supervised}\noptimizer: {lr: 0}").effective_lr(), supervised.optimizer.lr)
      << "the paper has no rule for it, and it has Adam";
}

TEST(Config, RivalsHaveTheirPreset) {
  const auto c = from("method: {name: simsiam}");
  EXPECT_EQ(c.method.encoder.norm, nn::Norm::kBatch);
  EXPECT_EQ(c.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(c.optimizer.weight_decay, 1e-4);
  EXPECT_EQ(c.train.batch_size, 256);
  EXPECT_EQ(c.views.noise, 0) << "noise is EBCLR's alone";
  EXPECT_EQ(c.method.head.out, 2048);
  EXPECT_EQ(c.method.head.layers, 2) << "SimSiam's CIFAR setting";
  EXPECT_TRUE(c.method.head.output_norm);
  EXPECT_FALSE(c.method.head.output_affine);
  EXPECT_EQ(c.origins.at("encoder.norm"), "method simsiam");
  EXPECT_EQ(from("method: {name: moco}").method.moco.temperature, 0.2);
  EXPECT_EQ(from("method: {name: moco}").method.moco.queue, 4096);
}

TEST(Config, LaterLayersWinAndAreNamed) {
  std::vector<std::string> warnings;
  const auto c =
      resolve({parse_layer("method: {name: simclr}\nencoder: {norm: none, width: 16}", "a.yaml", warnings),
               {"--set", {{"encoder.width", "32"}}}});
  EXPECT_EQ(c.method.encoder.norm, nn::Norm::kNone) << "a file beats the method's preset";
  EXPECT_EQ(c.method.encoder.width, 32);
  EXPECT_EQ(c.origins.at("encoder.norm"), "a.yaml");
  EXPECT_EQ(c.origins.at("encoder.width"), "--set");
  EXPECT_EQ(c.origins.at("train.seed"), "default");
}

TEST(Config, MistakesNameTheNearestKey) {
  expect_error(
      ExitCode::kUsage, [] { from("method: {lamda: 0.1}"); }, "x.yaml", "method.lamda",
      "did you mean 'method.lambda'");
  expect_error(
      ExitCode::kUsage, [] { from("epochs: 3"); }, "did you mean 'train.epochs'");
  expect_error(
      ExitCode::kUsage, [] { from("qwertyuiopasdf: 3"); }, "ebclr config keys");
  expect_error(
      ExitCode::kUsage, [] { from("encoder: {width: wide}"); }, "encoder.width", "'wide'", "a whole number");
  expect_error(
      ExitCode::kUsage, [] { from("encoder: {width: 1.5}"); }, "a whole number");
  expect_error(
      ExitCode::kUsage, [] { from("method: {lambda: .nan}"); }, "method.lambda");
  expect_error(
      ExitCode::kUsage, [] { from("method: {lambda: -1}"); }, "at least 0");
  expect_error(
      ExitCode::kUsage, [] { from("method: {tau: 0}"); }, "above 0");
  expect_error(
      ExitCode::kUsage, [] { from("buffer: {rho: 1.2}"); }, "[0, 1]");
  for (const char* beta : {"beta1", "beta2"}) {
    expect_error(
        ExitCode::kUsage, [&] { from(std::string("optimizer: {") + beta + ": 1}"); }, beta, "[0, 1)");
    EXPECT_NO_THROW(from(std::string("optimizer: {") + beta + ": 0.9999}"));
  }
  expect_error(
      ExitCode::kUsage, [] { from("encoder: {norm: layer}"); }, "none | batch");
  expect_error(
      ExitCode::kUsage, [] { from("encoder: [1, 2]"); }, "single value");
  expect_error(
      ExitCode::kUsage, [] { from("a: {b: ["); }, "not valid YAML", "line");
  expect_error(
      ExitCode::kUsage, [] { from("just text"); }, "keys and values");
  expect_error(
      ExitCode::kUsage, [] { from("buffer: {size: 64}"); }, "smaller than train.batch_size");
  expect_error(
      ExitCode::kUsage, [] { from("augment: {crop_min: 0.9, crop_max: 0.5}"); }, "crop_min");
  expect_error(
      ExitCode::kUsage, [] { parse_assignment("novalue"); }, "key=value");
  std::vector<std::string> warnings;
  expect_error(
      ExitCode::kUsage, [&] { read_layer("ebclr/cifar10_b129", warnings); },
      "did you mean 'ebclr/cifar10_b128'");
}

TEST(Config, YamlRoundTrips) {
  for (const auto& name : methods::method_names()) {
    const auto c = resolve({{"t",
                             {{"method.name", name},
                              {"data.source", "some dir/with: odd #name"},
                              {"train.seed", "77"},
                              {"sampler.clamp", "0"},
                              {"optimizer.lr", "0.00123"}}}});
    std::vector<std::string> warnings;
    const auto back = resolve({parse_layer(to_yaml(c), "config.yaml", warnings)});
    for (const auto& f : fields()) EXPECT_EQ(f.get(back), f.get(c)) << f.key;
  }
}

TEST(Config, AnyTextSurvivesYaml) {
  for (const std::string text : {"null",
                                 "Null",
                                 "~",
                                 " lead",
                                 "trail ",
                                 "- x",
                                 "-",
                                 "---",
                                 "...",
                                 "true",
                                 "yes",
                                 "0x10",
                                 "1e3",
                                 "",
                                 "\"",
                                 "'",
                                 "a\\b",
                                 "two\nlines",
                                 "tab\there",
                                 "*a",
                                 "&a b",
                                 "!tag",
                                 "{a: b}",
                                 "[1]",
                                 "# no comment",
                                 "a: b",
                                 "a #b",
                                 "? q",
                                 "| x",
                                 "> x",
                                 "@a",
                                 "`a`",
                                 "%a",
                                 "\x01\x04\x7f",
                                 "\xc3\xa4\xe2\x82\xac",
                                 "=",
                                 "<<",
                                 "+",
                                 "."}) {
    const auto c = resolve({{"t", {{"data.source", text}}}});
    std::vector<std::string> warnings;
    const auto back = resolve({parse_layer(to_yaml(c), "config.yaml", warnings)});
    EXPECT_EQ(back.data.source, text);
  }
}

TEST(Config, AliasesAndOddKeysAreRefused) {
  using core::ExitCode;
  using testing::expect_error;
  expect_error(
      ExitCode::kUsage, [] { from("method: &a {x: *a}"); }, "line 1", "aliases");
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 8; ++j) bomb += "," + before;
    bomb += "]\n";
  }
  expect_error(
      ExitCode::kUsage, [&] { from(bomb); }, "aliases");
  for (const char* odd : {"{a: b}: c", "[a]: c", "? {x: 1}\n: y", "method: {[1]: 2}"})
    expect_error(
        ExitCode::kUsage, [&] { from(odd); }, "key");
  expect_error(
      ExitCode::kUsage, [] { from(std::string(100'000, '[')); }, "YAML");
  expect_error(
      ExitCode::kUsage, [] { from("a: " + std::string(2 << 20, 'x')); }, "too many");
}

TEST(Config, ACutConfigurationOfARunIsNoticed) {
  testing::TempDir dir;
  const auto text = to_yaml(resolve({{"t", {{"data.source", "shapes"}, {"train.seed", "7"}}}}));
  core::write_atomically(dir / "config.yaml", text, "test");
  EXPECT_NO_THROW(read_run_layer(dir / "config.yaml"));
  int borders = 0;
  for (size_t at = text.find('\n'); at + 1 < text.size(); at = text.find('\n', at + 1)) {
    core::write_atomically(dir / "config.yaml", text.substr(0, at + 1), "test");
    testing::expect_error(
        core::ExitCode::kUsage, [&] { read_run_layer(dir / "config.yaml"); }, "not whole");
    ++borders;
  }
  EXPECT_GT(borders, 50);
  // A file of version 1.0 was complete without that line, and knew fewer keys.
  auto old = text.substr(0, text.find("...\n"));
  const auto newer = old.find("  healthy: ");
  old.erase(newer, old.find('\n', newer) + 1 - newer);
  core::write_atomically(dir / "config.yaml", old, "test");
  EXPECT_NO_THROW(read_run_layer(dir / "config.yaml"));
}

TEST(Config, KeysAreUniqueAndDocumented) {
  std::set<std::string> keys;
  for (const auto& f : fields()) {
    EXPECT_TRUE(keys.insert(f.key).second) << f.key;
    EXPECT_FALSE(f.doc.empty()) << f.key;
    Config c = resolve({});
    const auto before = f.get(c);
    if (!before.empty()) f.set(c, before);  // what is shown can be set
    EXPECT_EQ(f.get(c), before) << f.key;
  }
}

TEST(ShippedConfigs, AllResolveAndCoverThePaper) {
  for (const auto& s : shipped_configs()) {
    std::vector<std::string> warnings;
    const auto c = resolve({read_layer(s.name, warnings)});
    EXPECT_TRUE(warnings.empty()) << s.name;
    EXPECT_EQ(c.data.source.empty(), s.name == "fast") << s.name << ": only the preset is for any images";
    EXPECT_EQ(s.text.substr(0, 2), "# ") << s.name << " begins with what it is";
  }
  for (const auto& [set, rho] :
       {std::pair{"mnist", 0.4}, {"fmnist", 0.6}, {"cifar10", 0.2}, {"cifar100", 0.2}}) {
    for (int batch : {16, 64, 128}) {
      std::vector<std::string> warnings;
      const auto c =
          resolve({read_layer(std::string("ebclr/") + set + "_b" + std::to_string(batch), warnings)});
      EXPECT_EQ(c.method.ebclr.buffer.rho, rho);
      EXPECT_EQ(c.train.batch_size, batch);
      EXPECT_EQ(c.train.epochs, 100);
      EXPECT_EQ(c.effective_lr(), batch == 128 ? 2e-4 : 1e-4);
    }
    for (const char* rival : {"simclr", "moco", "simsiam", "byol"})
      for (const auto& name : {std::string(rival) + "/" + set, std::string("quick/") + rival + "_" + set})
        EXPECT_TRUE(find_shipped(name).has_value()) << name;
    EXPECT_TRUE(find_shipped(std::string("quick/ebclr_") + set).has_value());
    std::vector<std::string> warnings;
    const auto fast = resolve({read_layer(std::string("fast/") + set, warnings)});
    EXPECT_EQ(fast.method.ebclr.buffer.rho, rho);
    EXPECT_DOUBLE_EQ(methods::forward_units(fast.method, fast.train.batch_size), 6 + 13.0 / 8);
  }
}

}  // namespace
}  // namespace ebclr::run
