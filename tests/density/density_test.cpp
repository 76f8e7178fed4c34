#include "density/density.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>

#include "data/catalog.h"
#include "density/proposals.h"
#include "density/samples.h"
#include "ebm/objective.h"
#include "expect_error.h"
#include "temp_dir.h"
#include "train/trainer.h"

namespace ebclr::density {
namespace {

std::shared_ptr<const data::ImageSet> images(int64_t count) {
  data::SourceOptions o;
  o.source = "shapes";
  o.limit = count;
  return std::make_shared<const data::ImageSet>(data::load(o).train);
}

TEST(DataProposals, AreViewsOfTheImagesAndIgnoreThreads) {
  const auto propose = data_proposals(images(48), {});
  const int threads = at::get_num_threads();
  core::Rng a(1, core::Stream::kChains), b(1, core::Stream::kChains);
  at::set_num_threads(1);
  const auto x = propose(40, a);
  at::set_num_threads(2);
  const auto y = propose(40, b);
  at::set_num_threads(threads);
  EXPECT_TRUE(torch::equal(x, y));
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{40, 3, 32, 32}));
  EXPECT_FALSE(torch::equal(x, propose(40, a)));
}

/// A run of a few steps, made once.
class OfRun : public ::testing::Test {
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
    train::Observer observer;
    const std::atomic<bool> go_on{false};
    train::Trainer({.folder = {*dir_ / "run"}, .config = config}, images(40), observer).run(go_on);
  }
  static void TearDownTestSuite() { delete dir_; }
  static run::Run open() { return run::Run::open(*dir_ / "run"); }

  static testing::TempDir* dir_;
};
testing::TempDir* OfRun::dir_ = nullptr;

TEST_F(OfRun, EnergiesFollowTheDefinitionWhateverTheBatches) {
  const auto d = load_density(open(), {.references = 16});
  ASSERT_EQ(d.references.sizes(), (std::vector<int64_t>{16, 16}));
  const auto set = *images(300);  // more than one batch
  const auto e = energies(d, set);
  torch::NoGradGuard no_grad;
  const auto f = d.model.head->forward(d.model.encoder->forward(data::to_unit_range(set.pixels)));
  EXPECT_TRUE(torch::allclose(e, ebm::energy(f, d.references, d.options.objective.tau), 1e-4, 1e-4));
}

/// Remembers how many images go through the network at once.
class CountingEnergy : public methods::ClassEnergy {
 public:
  CountingEnergy(const run::Model& model, std::vector<int64_t>& asked)
      : ClassEnergy(*model.encoder, *model.head), asked_(asked) {}

 protected:
  torch::Tensor of_outputs(const torch::Tensor& f) const override {
    asked_.push_back(f.size(0));
    return ClassEnergy::of_outputs(f);
  }

 private:
  std::vector<int64_t>& asked_;
};

TEST_F(OfRun, ChainsGoThroughTheNetworkInBatches) {
  const auto d = load_density(open(), {.references = 16});
  std::vector<int64_t> asked;
  BatchedEnergy some(std::make_unique<CountingEnergy>(d.model, asked), 8);
  BatchedEnergy all(std::make_unique<CountingEnergy>(d.model, asked), 100);
  const auto v = data::to_unit_range(images(20)->pixels);
  const auto parts = some.evaluate(v), whole = all.evaluate(v);
  const auto values = some.value(v);
  EXPECT_EQ(asked, (std::vector<int64_t>{8, 8, 4, 20, 8, 8, 4}));
  EXPECT_TRUE(torch::allclose(parts.energy, whole.energy, 1e-4, 1e-5));
  EXPECT_TRUE(torch::allclose(parts.grad, whole.grad, 1e-3, 1e-5));
  EXPECT_TRUE(torch::allclose(values, whole.energy, 1e-4, 1e-5));
}

TEST_F(OfRun, ImagesThatAreThereAreNotReadAgain) {
  const auto run = open();
  const auto read = load_density(run, {.references = 16});
  const auto given = density_of(run, read.model, {.images = read.images, .references = 8});
  EXPECT_EQ(given.images, read.images);
  EXPECT_TRUE(torch::equal(given.references, density_of(run, read.model, {.references = 8}).references));
}

TEST_F(OfRun, SamplesDependOnTheSeedAlone) {
  const auto run = open();
  const auto d = load_density(run, {.references = 16});
  ChainStarts starts(run, d, "uniform", 3);
  const auto start = starts.next(6);
  EXPECT_LE(start.abs().max().item<float>(), 1);
  const auto a = draw_samples(d, start, {.steps = 5, .seed = 1});
  const auto b = draw_samples(d, start, {.steps = 5, .seed = 1});
  const auto c = draw_samples(d, start, {.steps = 5, .seed = 2});
  EXPECT_TRUE(torch::equal(a.samples, b.samples));
  EXPECT_FALSE(torch::equal(a.samples, c.samples));
  EXPECT_FALSE(torch::equal(a.samples, start));
  EXPECT_TRUE(torch::equal(draw_samples(d, start, {.steps = 0}).samples, start));
}

TEST_F(OfRun, AVisitHasAsManyStepsAsInTraining) {
  const auto run = open();
  auto plain = load_density(run, {.references = 16});
  auto yopo = plain;
  ChainStarts starts(run, plain, "uniform", 3);
  const auto start = starts.next(4);
  plain.options.sampler.steps = 6;
  yopo.options.sampler.kind = ebm::SamplerKind::kYopo;  // sampler.steps is 2 still, and says nothing
  yopo.options.sampler.outer = 3;
  yopo.options.sampler.inner = 2;
  const SampleOptions o{.steps = 12, .seed = 1};
  EXPECT_TRUE(torch::equal(draw_samples(plain, start, o).samples, draw_samples(yopo, start, o).samples));
}

TEST_F(OfRun, BufferGivesItsChainsOnceAndThenNoMore) {
  const auto run = open();
  const auto d = load_density(run, {.references = 4});
  ChainStarts starts(run, d, "buffer", 0);
  EXPECT_EQ(starts.available(), 30);
  EXPECT_GT(starts.age(), 1000);
  EXPECT_EQ(starts.next(20).size(0), 20);
  EXPECT_EQ(starts.next(20).size(0), 10);
  EXPECT_EQ(starts.next(20).size(0), 0);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { ChainStarts(run, d, "nowhere", 0); }, "nowhere");
}

}  // namespace
}  // namespace ebclr::density
