// The public interface as a program outside sees it: only headers of include/ebclr.

#include <ebclr/ebclr.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <regex>
#include <set>
#include <thread>

#include "temp_dir.h"

namespace {

using ebclr::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

/// Seconds of work: a narrow encoder on the built-in shapes.
ebclr::Configuration tiny() {
  ebclr::Configuration c;
  c.set("data.source", "shapes").set("data.limit", 64).set("encoder.width", 8).set("head.out", 16);
  c.set("buffer.size", 64).set("sampler.steps", 2).set("train.batch_size", 16).set("train.epochs", 1);
  c.set("log.every", 1).set("train.seed", 3);
  return c;
}

ebclr::TrainingOptions into(const std::filesystem::path& folder) {
  ebclr::TrainingOptions o;
  o.folder = folder;
  return o;
}

template <class F>
std::string error_of(F&& f, ebclr::Error::Kind kind = ebclr::Error::Kind::kInput) {
  try {
    f();
  } catch (const ebclr::Error& e) {
    EXPECT_EQ(e.kind(), kind);
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

struct Seen : ebclr::Observer {
  std::vector<ebclr::StepReport> steps;
  std::vector<int64_t> epochs;
  std::function<void(const ebclr::StepReport&)> then;
  void on_step(const ebclr::StepReport& r) override {
    steps.push_back(r);
    if (then) then(r);
  }
  void on_epoch(int64_t epoch, double knn) override {
    epochs.push_back(epoch);
    EXPECT_TRUE(std::isnan(knn));
  }
};

/// The last weights as one row of numbers: features of fixed images.
torch::Tensor fingerprint(const std::filesystem::path& run) {
  const auto x = torch::linspace(-1, 1, 2 * 3 * 32 * 32).view({2, 3, 32, 32});
  return ebclr::Model::load(run).embed(x);
}

TEST(Api, ConfigurationSetsReadsAndChecks) {
  ebclr::Configuration c;
  EXPECT_EQ(c.get("sampler.steps"), "10");
  c.set("sampler.steps", 7).set("method.tau", 0.25).set("data.grayscale", true);
  EXPECT_EQ(c.get("sampler.steps"), "7");
  EXPECT_EQ(c.get("method.tau"), "0.25");
  // Two keys that must fit each other may be set one after the other.
  c.set("sampler.sigma_min", 0.5).set("sampler.sigma_max", 0.6);
  EXPECT_EQ(c.get("sampler.sigma_max"), "0.6");
  EXPECT_EQ(ebclr::Configuration::parse(c.yaml()).yaml(), c.yaml());
  EXPECT_THAT(error_of([&] { c.set("sampler.stepz", 1); }), HasSubstr("did you mean 'sampler.steps'"));
  EXPECT_THAT(error_of([&] { c.get("nonsense.key"); }), HasSubstr("unknown key"));
  EXPECT_THAT(error_of([&] { c.set("sampler.steps", "many"); }), HasSubstr("expected"));
  EXPECT_THAT(error_of([] { ebclr::Configuration::load("quick/ebclr_cifar11"); }), HasSubstr("did you mean"));
  EXPECT_EQ(ebclr::Configuration::load("quick/ebclr_cifar10").get("data.source"), "cifar10");
  EXPECT_GT(ebclr::Configuration::keys().size(), 50u);
  // A method brings its own defaults for what was not set.
  EXPECT_EQ(ebclr::Configuration().set("method.name", "simclr").get("encoder.norm"), "batch");
}

TEST(Api, ViewsDependOnSeedAndView) {
  const auto pixels = ebclr::load_set("shapes",
                                      [] {
                                        ebclr::SetOptions o;
                                        o.limit = 4;
                                        return o;
                                      }())
                          .pixels;
  const ebclr::Views views;
  const auto a = views.make(pixels, 1, 0), again = views.make(pixels, 1, 0), b = views.make(pixels, 1, 1);
  EXPECT_EQ(a.sizes(), pixels.sizes());
  EXPECT_TRUE(a.equal(again));
  EXPECT_FALSE(a.equal(b));
  EXPECT_TRUE(views.make(pixels.narrow(0, 0, 2), 1, 0).equal(a.narrow(0, 0, 2)));
  const ebclr::Views plain(ebclr::Configuration()
                               .set("augment.crop_min", 1)
                               .set("augment.ratio_min", 1)
                               .set("augment.ratio_max", 1)
                               .set("augment.flip", 0)
                               .set("augment.jitter", 0)
                               .set("augment.grayscale", 0)
                               .set("augment.noise", 0));
  EXPECT_LT((plain.make(pixels, 1) - ebclr::to_unit_range(pixels)).abs().max().item<double>(), 1e-5);
  EXPECT_THAT(error_of([&] { views.make(torch::rand({2, 3, 32, 32}), 1); }), HasSubstr("uint8 [N, C, H, W]"));
}

TEST(Api, TrainsObservesAndLoads) {
  TempDir dir;
  auto seen = std::make_shared<Seen>();
  auto options = into(dir.path() / "run");
  options.observer = seen;
  ebclr::Training training(tiny(), options);
  const auto outcome = training.run();
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.step, 4);
  ASSERT_EQ(seen->steps.size(), 4u);
  EXPECT_EQ(seen->steps[1].step, 2);
  EXPECT_EQ(seen->steps[1].total_steps, 4);
  EXPECT_EQ(seen->epochs, std::vector<int64_t>{1});
  EXPECT_THAT(error_of([&] { ebclr::Training(tiny(), into(dir.path() / "run")); }),
              HasSubstr("already holds a run; resume it"));

  auto model = ebclr::Model::load(dir.path() / "run");
  EXPECT_EQ(model.size(), 64);
  EXPECT_EQ(model.size(ebclr::Output::kProjection), 16);
  EXPECT_EQ(model.image_shape(), (std::vector<int64_t>{3, 32, 32}));
  EXPECT_EQ(model.epoch(), 1);
  EXPECT_EQ(model.configuration().get("encoder.width"), "8");
  const auto pixels = torch::randint(0, 256, {300, 3, 32, 32}, torch::kUInt8);
  const auto features = model.embed(pixels);
  EXPECT_EQ(features.sizes(), (std::vector<int64_t>{300, 64}));
  // Bytes and their floats are the same images, whatever the batch.
  EXPECT_TRUE(torch::allclose(model.embed(ebclr::to_unit_range(pixels.narrow(0, 290, 10))),
                              features.narrow(0, 290, 10), 1e-4, 1e-5));
  EXPECT_EQ(model.embed(pixels.narrow(0, 0, 0)).sizes(), (std::vector<int64_t>{0, 64}));
  EXPECT_EQ(model.embed(pixels.narrow(0, 0, 2).narrow(1, 0, 1)).size(0),
            2);  // grey, copied to three channels
  EXPECT_THAT(error_of([&] { model.embed(torch::rand({2, 3, 8, 8})); }), HasSubstr("16 x 16 or larger"));
  EXPECT_THAT(error_of([&] { model.embed(torch::rand({2, 2, 32, 32})); }), HasSubstr("2 channels"));
  EXPECT_THAT(error_of([&] {
                model.embed(torch::zeros({2, 3, 32, 32}, torch::kInt64));
              }),
              HasSubstr("uint8"));
  // Floats that nobody meant: 0..255, or not finite, wherever in a large batch.
  EXPECT_THAT(error_of([&] { model.embed(pixels.to(torch::kFloat32)); }), HasSubstr("up to 255"));
  for (const float wrong : {std::nanf(""), INFINITY, -INFINITY}) {
    auto x = torch::zeros({300, 3, 32, 32});
    x[299][2][31][31] = wrong;
    EXPECT_THAT(error_of([&] { model.embed(x); }), HasSubstr("[-1, 1]"));
    EXPECT_THAT(error_of([&] { model.reference(x); }), HasSubstr("[-1, 1]"));
  }
  EXPECT_EQ(model.embed(torch::full({1, 3, 32, 32}, 1.5)).size(0), 1) << "augmented images step over";

  // Energies: as the paper defines them, against references of our choice.
  const auto references = pixels.narrow(0, 0, 5);
  model.reference(references);
  const auto unit = [&](const torch::Tensor& x) {
    const auto f = model.embed(x, ebclr::Output::kProjection);
    return f / f.norm(2, 1, true);
  };
  const auto asked = pixels.narrow(0, 5, 7);
  const double tau = std::stod(model.configuration().get("method.tau"));
  const auto want = -torch::logsumexp(-torch::cdist(unit(asked), unit(references)).pow(2) / tau, 1);
  EXPECT_TRUE(torch::allclose(model.energy(asked), want, 1e-3, 1e-3));
  const auto value = model.energy_function()->evaluate(ebclr::to_unit_range(asked));
  EXPECT_TRUE(torch::allclose(value.energy.detach(), want, 1e-3, 1e-3));
  EXPECT_EQ(value.gradient.sizes(), asked.sizes());

  EXPECT_THAT(error_of([&] { ebclr::Model::load(dir.path() / "none"); }), HasSubstr("no such run folder"));
}

TEST(Api, SamplesFromTheModel) {
  TempDir dir;
  ebclr::Training(tiny(), into(dir.path() / "run")).run();
  const auto model = ebclr::Model::load(dir.path() / "run");
  ebclr::SampleOptions o;
  o.count = 6;
  o.steps = 5;
  const auto samples = model.sample(o);
  EXPECT_EQ(samples.images.sizes(), (std::vector<int64_t>{6, 3, 32, 32}));
  EXPECT_EQ(samples.energy_end.sizes(), (std::vector<int64_t>{6}));
  EXPECT_TRUE(samples.images.equal(model.sample(o).images));
  EXPECT_TRUE(torch::allclose(model.energy(samples.images), samples.energy_end, 1e-3, 1e-3));
  o.start = ebclr::Start::kBuffer;
  EXPECT_FALSE(model.sample(o).images.equal(samples.images));

  // A sampler of our own sees the model's energy and decides where chains end.
  struct Downhill : ebclr::Sampler {
    ebclr::SamplerResult run(ebclr::Energy& energy, const torch::Tensor& start, const torch::Tensor& visits,
                             ebclr::Noise&) override {
      EXPECT_EQ(visits.sizes(), (std::vector<int64_t>{start.size(0)}));
      auto v = start;
      for (int i = 0; i < 5; ++i) v = v - 0.05 * energy.evaluate(v).gradient.clamp(-1, 1);
      return {v, {}};
    }
  };
  o.start = ebclr::Start::kUniform;
  o.sampler = std::make_shared<Downhill>();
  const auto descended = model.sample(o);
  EXPECT_LT(descended.energy_end.mean().item<double>(), descended.energy_start.mean().item<double>());

  // One that loses chains.
  struct Loses : ebclr::Sampler {
    bool all = false;
    ebclr::SamplerResult run(ebclr::Energy&, const torch::Tensor& start, const torch::Tensor&,
                             ebclr::Noise&) override {
      return {all ? torch::Tensor() : start.narrow(0, 0, 1), {}};
    }
  };
  auto loses = std::make_shared<Loses>();
  o.sampler = loses;
  EXPECT_THAT(error_of([&] { model.sample(o); }), HasSubstr("chains shaped like their starts"));
  loses->all = true;
  EXPECT_THAT(error_of([&] { model.sample(o); }), HasSubstr("chains shaped like their starts"));
  // Chains in double, and far away: what became of them is the sampler's.
  struct Far : ebclr::Sampler {
    ebclr::SamplerResult run(ebclr::Energy&, const torch::Tensor& start, const torch::Tensor&,
                             ebclr::Noise&) override {
      return {start.to(torch::kFloat64) + 30, {}};
    }
  };
  o.sampler = std::make_shared<Far>();
  const auto far = model.sample(o);
  EXPECT_EQ(far.images.scalar_type(), torch::kFloat32);
  EXPECT_EQ(far.energy_end.size(0), 6);

  o.sampler = nullptr;
  o.count = int64_t{1} << 40;
  EXPECT_THAT(error_of([&] { model.sample(o); }), HasSubstr("at most 1048576"));
  for (const int64_t none : {0, -3}) {
    ebclr::ModelOptions few;
    few.references = none;
    EXPECT_THAT(error_of([&] { ebclr::Model::load(dir.path() / "run", few); }),
                HasSubstr("references must be at least 1"));
  }
}

TEST(Api, StopsAndResumesToTheSameBytes) {
  TempDir dir;
  ebclr::Training(tiny(), into(dir.path() / "whole")).run();

  auto seen = std::make_shared<Seen>();
  auto options = into(dir.path() / "cut");
  options.observer = seen;
  ebclr::Training first(tiny(), options);
  seen->then = [&](const ebclr::StepReport& r) {
    if (r.step == 2) std::thread([&] { first.stop(); }).join();  // any thread may
  };
  const auto half = first.run();
  EXPECT_FALSE(half.finished);
  EXPECT_EQ(half.step, 2);
  {
    const ebclr::Training gone = std::move(first);  // releases the folder
  }
  seen->then = nullptr;
  options.resume = true;
  ebclr::Training second(ebclr::Configuration(), options);
  EXPECT_TRUE(second.run().finished);
  EXPECT_TRUE(fingerprint(dir.path() / "cut").equal(fingerprint(dir.path() / "whole")));
}

TEST(Api, AnObserverThatThrowsEndsTheTraining) {
  TempDir dir;
  auto seen = std::make_shared<Seen>();
  seen->then = [](const ebclr::StepReport&) { throw std::logic_error("enough"); };
  auto options = into(dir.path() / "run");
  options.observer = seen;
  ebclr::Training training(tiny(), options);
  EXPECT_THROW(training.run(), std::logic_error);
}

/// Pulls two views together and keeps a running mean as state of its own.
struct Pull : ebclr::Method {
  torch::Tensor mean = torch::zeros({16}), scale = torch::ones({1}, torch::requires_grad());
  int updates = 0;
  ebclr::StepResult step(ebclr::Networks& networks, const ebclr::Step& s) override {
    const auto z1 = networks.project(networks.encode(s.view1)),
               z2 = networks.project(networks.encode(s.view2));
    auto loss = ((z1 - z2) * scale).pow(2).mean() + (z1 - mean).pow(2).mean();
    mean = mean * 0.9 + 0.1 * z1.detach().mean(0);
    return {loss, {{"pull", loss.item<double>()}}, {}};
  }
  void after_update(ebclr::Networks&, const ebclr::Step&) override { ++updates; }
  std::vector<torch::Tensor> parameters() override { return {scale}; }
  std::vector<std::pair<std::string, torch::Tensor>> state() override { return {{"mean", mean}}; }
};

TEST(Api, TrainsAMethodFromOutside) {
  TempDir dir;
  const auto train = [&](const std::string& name, int64_t stop_at) {
    auto method = std::make_shared<Pull>();
    auto seen = std::make_shared<Seen>();
    auto options = into(dir.path() / name);
    options.method = method;
    options.observer = seen;
    ebclr::Training training(tiny(), options);
    seen->then = [&](const ebclr::StepReport& r) {
      if (r.step == stop_at) training.stop();
    };
    training.run();
    EXPECT_EQ(method->updates, std::min<int64_t>(4, stop_at));
    EXPECT_NE(method->scale.item<float>(), 1.0f) << "its parameter was not trained";
    EXPECT_EQ(seen->steps.back().metrics.front().first, "pull");
    return options;
  };
  train("whole", 100);
  auto options = train("cut", 2);
  options.resume = true;
  options.method = std::make_shared<Pull>();
  options.observer = nullptr;
  ebclr::Training(ebclr::Configuration(), options).run();
  EXPECT_TRUE(fingerprint(dir.path() / "cut").equal(fingerprint(dir.path() / "whole")));
  EXPECT_EQ(ebclr::Model::load(dir.path() / "cut").configuration().get("method.name"), "custom");

  struct Empty : ebclr::Method {
    ebclr::StepResult step(ebclr::Networks&, const ebclr::Step&) override { return {}; }
  };
  auto wrong = into(dir.path() / "wrong");
  wrong.method = std::make_shared<Empty>();
  ebclr::Training training(tiny(), wrong);
  EXPECT_THAT(error_of([&] { training.run(); }), HasSubstr("scalar loss"));
}

TEST(Api, AMetricMayNotReplaceAKeyOfTheLog) {
  TempDir dir;
  auto options = into(dir.path() / "run");
  options.method = std::make_shared<Pull>();
  ebclr::Training(tiny(), options).run();
  std::ifstream log(dir.path() / "run/metrics.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(log, line));
  std::set<std::string> keys = {"event", "knn", "output_norm"};
  const std::regex key("\"(\\w+)\":");
  for (std::sregex_iterator i(line.begin(), line.end(), key), end; i != end; ++i) keys.insert((*i)[1]);
  EXPECT_EQ(keys.erase("pull"), 1u);
  EXPECT_EQ(keys.count("loss") + keys.count("step"), 2u) << line;

  struct Named : Pull {
    std::string name;
    ebclr::StepResult step(ebclr::Networks& networks, const ebclr::Step& s) override {
      auto out = Pull::step(networks, s);
      out.metrics = {{name, 7}};
      return out;
    }
  };
  for (const auto& name : keys) {
    auto method = std::make_shared<Named>();
    method->name = name;
    options.folder = dir.path() / name;
    options.method = method;
    ebclr::Training training(tiny(), options);
    EXPECT_THAT(error_of([&] { training.run(); }), HasSubstr("metric '" + name + "'"));
  }
}

TEST(Api, WhatAMethodCannotMeasureIsNoFault) {
  struct Unsure : ebclr::Method {
    ebclr::StepResult step(ebclr::Networks& networks, const ebclr::Step& s) override {
      const auto f = networks.encode(s.view1);
      return {f.pow(2).mean(), {{"accuracy", NAN}, {"sure", 1}, {"far", INFINITY}}, {}};
    }
  };
  TempDir dir;
  auto options = into(dir.path() / "run");
  options.method = std::make_shared<Unsure>();
  EXPECT_TRUE(ebclr::Training(tiny(), options).run().finished);
  std::ifstream log(dir.path() / "run/metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(log, line); ++lines) {
    EXPECT_THAT(line, HasSubstr("\"sure\":1"));
    for (const char* absent : {"accuracy", "far", "spread", "rollback\""})
      EXPECT_THAT(line, Not(HasSubstr(absent))) << "nothing was projected, nothing else measured";
  }
  EXPECT_EQ(lines, 4);
}

/// Leaves chains where they are, but for a little noise.
struct Stay : ebclr::Sampler {
  int runs = 0;
  ebclr::SamplerResult run(ebclr::Energy& energy, const torch::Tensor& start, const torch::Tensor&,
                           ebclr::Noise& noise) override {
    ++runs;
    EXPECT_EQ(energy.evaluate(start).energy.size(0), start.size(0));
    return {start + 0.01 * noise.draw(start), {}};
  }
};

TEST(Api, ARunGoesOnWithTheKindOfSamplerThatItBeganWith) {
  TempDir dir;
  for (const bool own : {true, false}) {
    auto options = into(dir.path() / (own ? "own" : "ours"));
    options.sampler = own ? std::make_shared<Stay>() : nullptr;
    ebclr::Training(tiny(), options).run();
    options.resume = true;
    const auto longer = ebclr::Configuration().set("train.epochs", 2);
    options.sampler = own ? nullptr : std::make_shared<Stay>();
    EXPECT_THAT(error_of([&] { ebclr::Training(longer, options); }),
                HasSubstr(own ? "a sampler of another program; resume it there"
                              : "resume it without TrainingOptions::sampler"));
    options.sampler = own ? std::make_shared<Stay>() : nullptr;
    EXPECT_TRUE(ebclr::Training(longer, options).run().finished);
  }
}

TEST(Api, TrainsWithASamplerFromOutsideOnImagesInMemory) {
  TempDir dir;
  auto sampler = std::make_shared<Stay>();
  auto options = into(dir.path() / "run");
  options.sampler = sampler;
  options.images.pixels = torch::randint(0, 256, {32, 1, 20, 24}, torch::kUInt8);
  ebclr::Training(tiny(), options).run();
  EXPECT_EQ(sampler->runs, 2);
  auto model = ebclr::Model::load(dir.path() / "run");
  EXPECT_EQ(model.image_shape(), (std::vector<int64_t>{1, 20, 24}));
  EXPECT_THAT(error_of([&] { model.energy(options.images.pixels); }), HasSubstr("Model::reference"));
  model.reference(options.images.pixels);
  EXPECT_EQ(model.energy(options.images.pixels).size(0), 32);

  options.folder = dir.path() / "other";
  EXPECT_THAT(error_of([&] {
                ebclr::Training(tiny().set("method.name", "simclr").set("train.batch_size", 16), options);
              }),
              HasSubstr("is for EBCLR"));
}

/// E(v) = |v - 3|^2 / (2 * 0.25): normal with mean 3 and standard deviation 0.5.
struct Normal : ebclr::Energy {
  Value evaluate(const torch::Tensor& v) override { return {(v - 3).pow(2).sum(1) / 0.5, (v - 3) / 0.25}; }
};

TEST(Api, LangevinSamplesAnEnergyFromOutside) {
  ebclr::LangevinOptions o;
  o.steps = 400;
  o.step_size = 0.005;
  o.clamp = 0;
  o.sigma_min = o.sigma_max = std::sqrt(2 * o.step_size);
  const auto sampler = ebclr::make_langevin(o);
  Normal energy;
  ebclr::Noise noise(5);
  const auto out = sampler->run(energy, torch::zeros({4000, 2}), torch::zeros({4000}, torch::kInt64), noise);
  EXPECT_EQ(out.energies.size(), 400u);
  EXPECT_NEAR(out.chains.mean().item<double>(), 3, 0.03);
  EXPECT_NEAR(out.chains.std().item<double>(), 0.5, 0.03);
  EXPECT_THAT(error_of([] {
                ebclr::LangevinOptions bad;
                bad.steps = 0;
                ebclr::make_langevin(bad);
              }),
              HasSubstr("at least 1"));
}

TEST(Api, ReadsAFolderAsTheModelDoes) {
  TempDir dir;
  ebclr::Training(tiny(), into(dir.path() / "run")).run();
  std::filesystem::create_directories(dir.path() / "photos/a");
  for (const char* name : {"a/1.ppm", "a/2.ppm"}) {
    std::ofstream file(dir.path() / "photos" / name, std::ios::binary);
    file << "P6\n40 36\n255\n" << std::string(40 * 36 * 3, 'x');
  }
  const auto model = ebclr::Model::load(dir.path() / "run");
  const auto images = model.read_folder(dir.path() / "photos");
  EXPECT_EQ(images.pixels.sizes(), (std::vector<int64_t>{2, 3, 32, 32}));
  EXPECT_EQ(images.files, (std::vector<std::string>{"a/1.ppm", "a/2.ppm"}));
  EXPECT_EQ(model.embed(images).sizes(), (std::vector<int64_t>{2, 64}));
  EXPECT_THAT(error_of([&] { model.read_folder(dir.path() / "nothing"); }), HasSubstr("nothing"));
}

}  // namespace
