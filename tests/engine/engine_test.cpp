// The native engine against the torch encoder in double precision.

#include "engine/engine.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cpu/kernels.h"
#include "ebm/sampler.h"
#include "expect_error.h"
#include "golden.h"
#include "methods/contrastive_energy.h"
#include "shared_batch.h"

namespace ebclr::engine {
namespace {

using nn::Encoder;
using nn::EncoderOptions;
using testing::relative_l2;
using torch::Tensor;

constexpr double kEngineTolerance = 1e-3;

struct Case {
  EncoderOptions encoder;
  int64_t batch, height, width;
  int threads;
  std::string instructions;
};

std::vector<Case> cases() {
  EncoderOptions narrow, grey, relu, deep, norm, grey_norm, sws, large, large_norm, patch;
  large_norm.width = 8;
  large.width = patch.width = 16;
  large.stem = large_norm.stem = nn::Stem::kImagenet;
  large.activation = nn::Activation::kRelu;
  large_norm.norm = nn::Norm::kBatch;
  patch.stem = nn::Stem::kPatch;
  narrow.width = deep.width = norm.width = sws.width = 8;
  grey.width = grey_norm.width = 24;
  grey.channels = grey_norm.channels = 1;
  relu.width = 16;
  relu.activation = grey_norm.activation = nn::Activation::kRelu;
  deep.arch = "resnet34";
  deep.init = nn::Init::kResidual;
  norm.norm = grey_norm.norm = nn::Norm::kBatch;
  sws.norm = nn::Norm::kSws;
  sws.skip = 0.5;
  std::vector<Case> list;
  for (const cpu::Kernels* k : cpu::available_kernels()) {
    const std::string set = k->name;
    list.push_back({narrow, 3, 32, 32, 2, set});
    list.push_back({grey, 2, 28, 28, 1, set});
    list.push_back({relu, 5, 17, 21, 3, set});
    list.push_back({deep, 1, 33, 16, 2, set});
    list.push_back({norm, 6, 32, 32, 2, set});
    list.push_back({grey_norm, 4, 19, 28, 3, set});
    list.push_back({sws, 3, 24, 32, 2, set});
    list.push_back({large, 3, 70, 64, 2, set});
    list.push_back({large_norm, 5, 48, 51, 2, set});
    list.push_back({patch, 1, 64, 48, 3, set});
  }
  return list;
}

/// Forward and backward through an encoder; the loss weighs features at random so that every part counts.
struct Result {
  Tensor features, dx;
  std::vector<Tensor> gradients;
};

Result run(Encoder& encoder, const Tensor& images, const Tensor& weights, bool parameters) {
  for (Tensor& p : encoder.parameters()) {
    p.set_requires_grad(parameters);
    p.mutable_grad() = Tensor();
  }
  const Tensor x = images.to(encoder.parameters()[0].scalar_type()).detach().requires_grad_(true);
  const Tensor features = encoder.forward(x);
  (features * weights.to(features.scalar_type())).sum().backward();
  Result r{features.detach(), x.grad(), {}};
  if (parameters) {
    for (const Tensor& p : encoder.parameters()) r.gradients.push_back(p.grad());
  }
  return r;
}

/// A copy in double precision, without backend.
std::shared_ptr<Encoder> in_double(const Encoder& encoder) {
  auto copy = std::make_shared<Encoder>(encoder.options(), 0);
  nn::copy_state(encoder, *copy);
  copy->to(torch::kDouble);
  copy->train(encoder.is_training());
  return copy;
}

/// BatchNorm's parameters away from one and zero.
void shake(Encoder& encoder) {
  torch::NoGradGuard guard;
  torch::manual_seed(7);
  for (auto& item : encoder.named_buffers()) {
    if (item.key().find("running_mean") != std::string::npos) item.value().normal_(0, 0.1);
    if (item.key().find("running_var") != std::string::npos) item.value().uniform_(0.5, 2);
  }
  for (auto& module : encoder.modules(false)) {
    if (auto* bn = module->as<torch::nn::BatchNorm2d>()) {
      bn->weight.uniform_(0.5, 1.5);
      bn->bias.normal_(0, 0.2);
    }
  }
}

class EngineTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    torch::manual_seed(3);
    encoder_ = std::make_shared<Encoder>(c.encoder, 1);
    shake(*encoder_);
    choice_ =
        attach(*encoder_, {.engine = Engine::kNative, .threads = c.threads, .instructions = c.instructions});
    images_ = torch::rand({c.batch, c.encoder.channels, c.height, c.width}) * 2 - 1;
    weights_ = torch::randn({c.batch, encoder_->feature_dim()});
  }
  std::shared_ptr<Encoder> encoder_;
  EngineChoice choice_;
  Tensor images_, weights_;
};

TEST_P(EngineTest, TrainsLikeTorchInDouble) {
  ASSERT_TRUE(choice_.native) << choice_.reason;
  auto reference = in_double(*encoder_);
  const Result got = run(*encoder_, images_, weights_, true), want = run(*reference, images_, weights_, true);
  EXPECT_LT(relative_l2(got.features, want.features), kEngineTolerance);
  EXPECT_LT(relative_l2(got.dx, want.dx), kEngineTolerance);
  const auto names = encoder_->named_parameters().keys();
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_LT(relative_l2(got.gradients[i], want.gradients[i]), kEngineTolerance) << names[i];
  }
  for (const auto& item : encoder_->named_buffers()) {
    EXPECT_LT(relative_l2(item.value(), reference->named_buffers()[item.key()]), kEngineTolerance)
        << item.key();
  }
}

TEST_P(EngineTest, SamplesLikeTorchInDouble) {
  for (const bool training : {false, true}) {
    encoder_->train(training);
    const auto reference = in_double(*encoder_);
    const Result got = run(*encoder_, images_, weights_, false),
                 want = run(*reference, images_, weights_, false);
    EXPECT_LT(relative_l2(got.features, want.features), kEngineTolerance);
    EXPECT_LT(relative_l2(got.dx, want.dx), kEngineTolerance);
  }
}

TEST_P(EngineTest, InfersLikeTorchInDouble) {
  torch::NoGradGuard guard;
  for (const bool training : {false, true}) {
    encoder_->train(training);
    const auto reference = in_double(*encoder_);
    EXPECT_LT(relative_l2(encoder_->forward(images_), reference->forward(images_.to(torch::kDouble))),
              kEngineTolerance);
  }
}

TEST_P(EngineTest, RepeatsBitForBit) {
  auto again = std::make_shared<Encoder>(GetParam().encoder, 1);
  nn::copy_state(*encoder_, *again);
  attach(*again,
         {.engine = Engine::kNative, .threads = GetParam().threads, .instructions = GetParam().instructions});
  const Result a = run(*encoder_, images_, weights_, true), b = run(*again, images_, weights_, true);
  EXPECT_TRUE(torch::equal(a.features, b.features));
  EXPECT_TRUE(torch::equal(a.dx, b.dx));
  for (size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_TRUE(torch::equal(a.gradients[i], b.gradients[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, EngineTest, ::testing::ValuesIn(cases()));

bool native_available() {
  return !cpu::available_kernels().empty();
}

/// Chains of a small EBCLR network along its energy, by the given sampler.
ebm::SampleResult chains_of(const ebm::SamplerOptions& sampler, int cut, bool native, bool keep_whole,
                            ebm::NoiseSource& noise, int threads = 2) {
  torch::manual_seed(5);
  Encoder encoder({.width = 16}, 1);
  nn::Head head({.in = encoder.feature_dim(), .hidden = 40, .out = 12}, 1);
  if (native) attach(encoder, {.engine = Engine::kNative, .threads = threads});
  const Tensor references = torch::randn({6, 12}), start = torch::rand({3, 3, 20, 16}) * 2 - 1;
  /// Hides the quicker way.
  class StepByStep : public ebm::CutEnergy {
   public:
    explicit StepByStep(methods::ContrastiveEnergy& inner) : inner_(inner) {}
    ebm::EnergyGrad evaluate(const Tensor& v) override { return inner_.evaluate(v); }
    ebm::EnergyGrad costate(const Tensor& v) override { return inner_.costate(v); }
    Tensor pull_back(const Tensor& v, const Tensor& p) override { return inner_.pull_back(v, p); }

   private:
    methods::ContrastiveEnergy& inner_;
  };
  methods::ContrastiveEnergy energy(encoder, head, references, 0.1, cut);
  StepByStep step_by_step(energy);
  ebm::Energy& used = keep_whole ? static_cast<ebm::Energy&>(energy) : step_by_step;
  return ebm::make_sampler(sampler)->run(used, start, torch::tensor({0, 1, 5}, torch::kInt64), noise);
}

TEST(Engine, ChainsInOneCallAreThoseStepByStep) {
  if (!native_available()) GTEST_SKIP();
  const ebm::SamplerOptions langevin{.steps = 6}, free{.steps = 3, .clamp = 0};
  const auto yopo = [](int64_t inner) {
    return ebm::SamplerOptions{.kind = ebm::SamplerKind::kYopo, .outer = 3, .inner = inner};
  };
  for (const auto& [sampler, cut] :
       {std::pair{langevin, 0}, {free, 0}, {yopo(1), 0}, {yopo(3), 0}, {yopo(3), 1}}) {
    ebm::CounterNoise a(9), b(9), c(9), d(9);
    const auto whole = chains_of(sampler, cut, true, true, a), loop = chains_of(sampler, cut, true, false, b),
               torch_way = chains_of(sampler, cut, false, false, c);
    EXPECT_EQ(a.counter(), b.counter()) << "both take the same noise";
    ASSERT_EQ(whole.energies.size(), loop.energies.size());
    for (const auto* other : {&loop, &torch_way}) {
      EXPECT_LT(relative_l2(whole.chains, other->chains), 1e-4);
      EXPECT_LT(relative_l2(torch::stack(whole.energies), torch::stack(other->energies)), 1e-4);
    }
    EXPECT_TRUE(torch::equal(whole.chains, chains_of(sampler, cut, true, true, d, 3).chains))
        << "whatever the number of threads";
  }
}

TEST(Engine, ChainsInBfloat16) {
  if (cpu::bf16_kernels() == nullptr) GTEST_SKIP() << "no avx512_bf16";
  for (const auto kind : {ebm::SamplerKind::kMsgld, ebm::SamplerKind::kYopo}) {
    ebm::SamplerOptions coarse{.kind = kind, .steps = 6, .outer = 3, .inner = 2}, exact = coarse;
    coarse.precision = ebm::Precision::kBfloat16;
    ebm::CounterNoise a(9), b(9), c(9), d(9);
    const auto got = chains_of(coarse, 0, true, true, a), want = chains_of(exact, 0, true, true, b);
    EXPECT_EQ(a.counter(), b.counter()) << "both take the same noise";
    EXPECT_FALSE(torch::equal(got.chains, want.chains));
    // Six steps of 0.05 at most, in directions that mostly agree.
    EXPECT_LT(relative_l2(got.chains, want.chains), 2e-2);
    EXPECT_LT(relative_l2(torch::stack(got.energies), torch::stack(want.energies)), 2e-2);
    EXPECT_TRUE(torch::equal(got.chains, chains_of(coarse, 0, true, true, c, 1).chains))
        << "whatever the number of threads";
    // No other way is taken instead without a word.
    EXPECT_THROW(chains_of(coarse, 0, true, false, d), core::Error);
    EXPECT_THROW(chains_of(coarse, 0, false, true, d), core::Error);
  }
}

TEST(Engine, ChainsInBfloat16FollowTheWeights) {
  if (cpu::bf16_kernels() == nullptr) GTEST_SKIP() << "no avx512_bf16";
  Encoder encoder({.width = 16}, 1);
  nn::Head head({.in = 128, .hidden = 40, .out = 12}, 1);
  attach(encoder, {.engine = Engine::kNative});
  const Tensor references = torch::randn({6, 12}), start = torch::rand({2, 3, 16, 16}) * 2 - 1;
  methods::ContrastiveEnergy energy(encoder, head, references, 0.1);
  const auto ends = [&] {
    ebm::CounterNoise noise(3);
    return ebm::make_sampler({.steps = 2, .precision = ebm::Precision::kBfloat16})
        ->run(energy, start, torch::zeros({2}, torch::kInt64), noise)
        .chains;
  };
  const Tensor before = ends();
  EXPECT_TRUE(torch::equal(before, ends()));
  {
    torch::NoGradGuard no_grad;
    for (auto& p : encoder.parameters()) p.mul_(1.3);
  }
  const Tensor after = ends();
  EXPECT_FALSE(torch::equal(before, after));
  Encoder fresh({.width = 16}, 1);
  nn::copy_state(encoder, fresh);
  attach(fresh, {.engine = Engine::kNative});
  methods::ContrastiveEnergy same(fresh, head, references, 0.1);
  ebm::CounterNoise noise(3);
  EXPECT_TRUE(torch::equal(after, ebm::make_sampler({.steps = 2, .precision = ebm::Precision::kBfloat16})
                                      ->run(same, start, torch::zeros({2}, torch::kInt64), noise)
                                      .chains));
}

TEST(Engine, Avx2HasNoBfloat16Chains) {
  if (cpu::find_kernels("avx2") == nullptr) GTEST_SKIP();
  Encoder encoder({.width = 16}, 1);
  attach(encoder, {.engine = Engine::kNative, .instructions = "avx2"});
  EXPECT_FALSE(encoder.backend()->has_bfloat16_chains());
}

TEST(Engine, ChainsLeaveTheRestToTorch) {
  if (!native_available()) GTEST_SKIP();
  Encoder encoder({.width = 16}, 1);
  attach(encoder, {.engine = Engine::kNative});
  nn::Head plain({.in = 128}, 1), normed({.in = 128, .hidden_norm = true}, 1);
  const Tensor v = torch::zeros({2, 3, 16, 16});
  EXPECT_TRUE(encoder.backend()->takes_chains(v, plain));
  EXPECT_FALSE(encoder.backend()->takes_chains(v, normed));
  EXPECT_FALSE(encoder.backend()->takes_chains(v.to(torch::kDouble), plain));
  EXPECT_FALSE(encoder.backend()->takes_chains(torch::zeros({2, 3, 8, 16}), plain));
}

// A batch spread over processes (threads here), in uneven parts, against the whole in double.
TEST(Engine, SharedBatchIsTheWholeBatch) {
  for (const cpu::Kernels* kernels : cpu::available_kernels()) {
    for (const auto stem : {nn::Stem::kCifar, nn::Stem::kImagenet}) {
      torch::manual_seed(3);
      const EncoderOptions options{.width = 8, .norm = nn::Norm::kBatch, .stem = stem};
      const int64_t size = stem == nn::Stem::kCifar ? 18 : 64;
      const Tensor images = torch::randn({5, 3, size, size}), weights = torch::randn({5, 64});
      const auto make = [&] {
        auto encoder = std::make_shared<Encoder>(options, 1);
        shake(*encoder);
        return encoder;
      };
      const auto whole = in_double(*make());
      const Result want = run(*whole, images, weights, true);
      const std::vector<std::shared_ptr<Encoder>> parts{make(), make()};
      const std::vector<std::pair<int64_t, int64_t>> rows{{0, 2}, {2, 5}};
      std::vector<Result> got(2);
      const int sums = testing::run_ranks(2, [&](int r, const nn::BatchSum& sum) {
        attach(*parts[r], {.engine = Engine::kNative, .threads = 1 + r, .instructions = kernels->name});
        parts[r]->set_batch_sum(sum);
        const auto [begin, end] = rows[r];
        got[r] = run(*parts[r], images.slice(0, begin, end), weights.slice(0, begin, end), true);
      });
      EXPECT_EQ(sums, 2 * 20);
      EXPECT_LT(relative_l2(torch::cat({got[0].features, got[1].features}), want.features), kEngineTolerance);
      EXPECT_LT(relative_l2(torch::cat({got[0].dx, got[1].dx}), want.dx), 5 * kEngineTolerance);
      for (size_t p = 0; p < want.gradients.size(); ++p) {
        EXPECT_LT(relative_l2(got[0].gradients[p] + got[1].gradients[p], want.gradients[p]),
                  10 * kEngineTolerance)
            << p;
      }
      const auto buffers = whole->buffers(), first = parts[0]->buffers(), second = parts[1]->buffers();
      for (size_t b = 0; b < buffers.size(); ++b) {
        EXPECT_LT(relative_l2(first[b].to(torch::kDouble), buffers[b].to(torch::kDouble)), kEngineTolerance);
        EXPECT_TRUE(first[b].equal(second[b]));
      }
    }
  }
}

TEST(Engine, AFailedSumReachesTheCaller) {
  Encoder encoder({.width = 8, .norm = nn::Norm::kBatch}, 1);
  if (!attach(encoder, {.threads = 2}).native) GTEST_SKIP() << "no kernels for this processor";
  int left = 25;  // the forward pass has 20
  encoder.set_batch_sum([&](std::span<double>) {
    if (--left == 0) throw std::runtime_error("a rank is gone");
  });
  const Tensor y = encoder.forward(torch::randn({2, 3, 16, 16}));
  EXPECT_THROW(y.sum().backward(), std::runtime_error);
  EXPECT_EQ(left, 0);  // and nobody asked again
  left = 3;
  EXPECT_THROW(encoder.forward(torch::randn({2, 3, 16, 16})), std::runtime_error);
}

TEST(Engine, FollowsItsParameters) {
  if (!native_available()) GTEST_SKIP();
  Encoder encoder({.width = 8}, 1);
  attach(encoder, {});
  torch::NoGradGuard guard;
  const Tensor x = torch::rand({2, 3, 16, 16});
  const Tensor before = encoder.forward(x);
  encoder.stages()[2][0]->conv2->weight.mul_(1.5);
  const Tensor after = encoder.forward(x);
  EXPECT_GT(relative_l2(after, before), 1e-2);
  EXPECT_LT(relative_l2(after, encoder.forward_reference(x)), 1e-4);
}

TEST(Engine, SeveralForwardsMayWaitForTheirBackward) {
  if (!native_available()) GTEST_SKIP();
  Encoder encoder({.width = 8}, 1);
  const auto reference = in_double(encoder);
  attach(encoder, {});
  const Tensor a = torch::rand({2, 3, 16, 16}), b = torch::rand({3, 3, 16, 16}),
               c = torch::rand({4, 3, 16, 16});
  const auto step = [&](Encoder& e) {
    const auto type = e.parameters()[0].scalar_type();
    const Tensor za = e.forward(a.to(type)), zb = e.forward(b.to(type));
    {
      const nn::FreezeParameters frozen({&e});
      const Tensor x = c.to(type).detach().requires_grad_(true);
      e.forward(x).square().sum().backward();
      EXPECT_TRUE(x.grad().defined());
    }
    (za.square().sum() + zb.sin().sum() + e.forward(c.to(type)).sum()).backward();
  };
  step(encoder);
  step(*reference);
  for (size_t i = 0; i < encoder.parameters().size(); ++i) {
    EXPECT_LT(relative_l2(encoder.parameters()[i].grad(), reference->parameters()[i].grad()),
              kEngineTolerance)
        << i;
  }
}

TEST(Engine, TenStepsStayWithTorch) {
  if (!native_available()) GTEST_SKIP();
  for (const nn::Norm norm : {nn::Norm::kNone, nn::Norm::kBatch}) {
    Encoder native({.width = 8, .norm = norm}, 1), plain({.width = 8, .norm = norm}, 1);
    attach(native, {});
    torch::optim::Adam a(native.parameters(), torch::optim::AdamOptions(2e-4));
    torch::optim::Adam b(plain.parameters(), torch::optim::AdamOptions(2e-4));
    torch::manual_seed(5);
    const Tensor target = torch::randn({6, 64});
    for (int step = 0; step < 10; ++step) {
      const Tensor x = torch::rand({6, 3, 16, 16}) * 2 - 1;
      const auto train = [&](Encoder& encoder, torch::optim::Adam& optimizer) {
        optimizer.zero_grad();
        const Tensor loss = (encoder.forward(x) - target).square().mean();
        loss.backward();
        optimizer.step();
        return loss.item<double>();
      };
      const double one = train(native, a), other = train(plain, b);
      EXPECT_NEAR(one, other, 1e-4 * std::abs(other)) << "step " << step;
    }
  }
}

TEST(Engine, GoldenFeaturesAndInputGradient) {
  if (!native_available()) GTEST_SKIP();
  Encoder colour({.width = 8}, 0), grey({.channels = 1}, 0);
  testing::fill_golden(colour, 0);
  testing::fill_golden(grey, 0);
  attach(colour, {});
  attach(grey, {});
  EXPECT_LT(relative_l2(colour.forward(testing::golden_float("net_w8_rgb32.input")),
                        testing::golden("net_w8_rgb32.features")),
            1e-4);
  EXPECT_LT(relative_l2(grey.forward(testing::golden_float("net_w64_gray28.input")),
                        testing::golden("net_w64_gray28.features")),
            1e-4);
}

TEST(Engine, RefusesSecondDerivativesAndStaleTapes) {
  if (!native_available()) GTEST_SKIP();
  Encoder encoder({.width = 8}, 1);
  attach(encoder, {});
  const Tensor x = torch::rand({1, 3, 16, 16}).requires_grad_(true);
  EXPECT_ANY_THROW(torch::autograd::grad({encoder.forward(x).sum()}, {x}, {}, true, true));
  const Tensor loss = encoder.forward(x).sum();
  {
    torch::NoGradGuard guard;
    encoder.conv1->weight.mul_(2);
  }
  EXPECT_ANY_THROW(loss.backward());
}

TEST(Engine, FallsBackToTorch) {
  Encoder odd({.width = 12}, 1), deep({.arch = "resnet50", .width = 8}, 1);
  EXPECT_FALSE(attach(odd, {}).native);
  EXPECT_FALSE(odd.has_backend());
  EXPECT_FALSE(attach(deep, {}).native);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { attach(deep, {.engine = Engine::kNative}); }, "[engine]");
  Encoder asked({.width = 8}, 1);
  EXPECT_FALSE(attach(asked, {.engine = Engine::kTorch}).native);
  testing::expect_error(
      core::ExitCode::kUsage, [] { parse_engine("fast"); }, "choose auto, native or torch");
  EXPECT_EQ(parse_engine("avx2").engine, Engine::kNative);
  EXPECT_EQ(parse_engine("avx2").instructions, "avx2");
  EXPECT_EQ(parse_engine("native").instructions, "");
  // What is less exact than float runs only when asked for.
  const cpu::Kernels* best = cpu::find_kernels("");
  if (best != nullptr) {
    EXPECT_STRNE(best->name, "amx");
  }
}

/// A processor that has no more than this, while it lives.
class Masked {
 public:
  explicit Masked(const char* most) { ::setenv("EBCLR_INSTRUCTIONS", most, 1); }
  ~Masked() { ::unsetenv("EBCLR_INSTRUCTIONS"); }
  Masked(const Masked&) = delete;
  Masked& operator=(const Masked&) = delete;
};

TEST(Engine, WithoutAvx2TorchRunsTheEncoder) {
  Encoder encoder({.width = 8}, 1);
  {
    const Masked none("none");
    EXPECT_TRUE(cpu::available_kernels().empty());
    EXPECT_EQ(cpu::bf16_kernels(), nullptr);
    const auto choice = attach(encoder, {});
    EXPECT_FALSE(choice.native);
    EXPECT_EQ(choice.reason, "torch (this processor has no AVX2 with FMA)");
    EXPECT_EQ(encoder.backend(), nullptr);
    EXPECT_EQ(encoder.forward(torch::zeros({1, 3, 16, 16})).size(0), 1);
    testing::expect_error(
        core::ExitCode::kUsage, [&] { attach(encoder, {.engine = Engine::kNative}); }, "no AVX2");
  }
  const Masked old("avx2");
  for (const cpu::Kernels* k : cpu::available_kernels()) EXPECT_STREQ(k->name, "avx2");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { attach(encoder, parse_engine("avx512")); },
      "this processor has no avx512");
}

TEST(Engine, LargeEvaluationBatchesPassInParts) {
  if (!native_available()) GTEST_SKIP();
  Encoder encoder({.width = 8, .channels = 1}, 1);
  attach(encoder, {.threads = 1});
  torch::NoGradGuard guard;
  const Tensor x = torch::rand({300, 1, 16, 16});
  EXPECT_LT(relative_l2(encoder.forward(x), encoder.forward_reference(x)), 1e-4);
}

}  // namespace
}  // namespace ebclr::engine
