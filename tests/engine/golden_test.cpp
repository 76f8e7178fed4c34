// The golden vectors with the native engine behind the encoder: energies, chains and ten training steps. The
// torch encoder meets them in tests/methods.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cpu/kernels.h"
#include "ebm/sampler.h"
#include "engine/engine.h"
#include "golden.h"
#include "golden_energy.h"
#include "methods/contrastive_energy.h"
#include "methods/method.h"

namespace ebclr::engine {
namespace {

using testing::GivenNoise;
using testing::golden;
using testing::golden_float;
using testing::GoldenNet;
using testing::relative_error;

/// Energies and chains; a gradient is clamped on its way into a chain, so that its error shrinks.
constexpr double kTolerance = 2e-5;
/// Gradients where an activation sits at zero, and what ten steps make of rounding.
constexpr double kLoose = 2e-3;

class GoldenEngine : public ::testing::TestWithParam<std::string> {
 protected:
  void attach_to(nn::Encoder& encoder) {
    ASSERT_TRUE(attach(encoder, {.engine = Engine::kNative, .instructions = GetParam()}).native);
  }
};

TEST_P(GoldenEngine, Energy) {
  GoldenNet net;
  attach_to(net.encoder);
  auto energy = net.energy("energy_w8.reference_images");
  const auto [e, grad] = energy.evaluate(golden_float("energy_w8.input"));
  EXPECT_LT(relative_error(e, golden("energy_w8.energy")), kTolerance);
  EXPECT_LT(relative_error(grad, golden("energy_w8.input_grad")), kLoose);
}

TEST_P(GoldenEngine, Chains) {
  GoldenNet net;
  attach_to(net.encoder);
  auto energy = net.energy("msgld_w8.reference_images");
  GivenNoise noise(golden_float("msgld_w8.noise"));
  const auto out = ebm::make_sampler({.clamp = 0.02})
                       ->run(energy, golden_float("msgld_w8.start"), golden("msgld_w8.counts"), noise);
  EXPECT_LT(relative_error(out.chains, golden("msgld_w8.result")), kTolerance);
  EXPECT_LT(relative_error(torch::stack(out.energies), golden("msgld_w8.energies")), kTolerance);
}

TEST_P(GoldenEngine, ChainsWithoutNoise) {
  GoldenNet net;
  attach_to(net.encoder);
  auto energy = net.energy("msgld_w8.reference_images");
  ebm::CounterNoise noise(0);
  const auto out = ebm::make_sampler({.clamp = 0.02, .sigma_min = 0, .sigma_max = 0})
                       ->run(energy, golden_float("msgld_w8.start"), golden("msgld_w8.counts"), noise);
  EXPECT_LT(relative_error(out.chains, golden("msgld_w8_noiseless.result")), kTolerance);
  EXPECT_LT(relative_error(torch::stack(out.energies), golden("msgld_w8_noiseless.energies")), kTolerance);
}

TEST_P(GoldenEngine, TenTrainingSteps) {
  methods::MethodOptions o;
  o.encoder.width = 8;
  o.head = {.hidden = 64, .out = 16};
  o.ebclr.buffer = {.size = 8, .rho = 0};  // eight chains that persist
  o.ebclr.sampler = {.steps = 5, .sigma_min = 0, .sigma_max = 0};
  const auto start = golden_float("ebclr_train10.chain_start");
  auto method = methods::make_method(o, {.data_proposals =
                                             [start](int64_t n, core::Rng&) {
                                               return start.narrow(0, 0, 1).repeat({n, 1, 1, 1});
                                             },
                                         .image_shape = {3, start.size(2), start.size(3)},
                                         .train_images = 8});
  testing::fill_golden(method->head(), testing::fill_golden(method->encoder(), 0));
  attach_to(method->encoder());
  method->buffer()->chains().copy_(start);
  torch::optim::Adam adam(method->parameter_groups()[0].parameters, torch::optim::AdamOptions(2e-4));
  const auto v1 = golden_float("ebclr_train10.view1"), v2 = golden_float("ebclr_train10.view2");
  const auto losses = golden("ebclr_train10.losses");
  for (int64_t t = 0; t < 10; ++t) {
    const methods::StepInput input{v1[t], v2[t], t, 0.1 * static_cast<double>(t)};
    const auto out = method->step(input);
    EXPECT_NEAR(out.loss.item<double>() / losses[t].item<double>(), 1, 1e-4) << "step " << t;
    adam.zero_grad();
    out.loss.backward();
    adam.step();
    method->after_update(input);
  }
  EXPECT_LT(relative_error(method->buffer()->chains(), golden("ebclr_train10.chain_end")), kLoose);
  torch::NoGradGuard guard;
  // (Of the instruction sets that are taken by name only.) Adam divides a gradient by its own size: where one
  // is near zero, what rounding makes of its sign is a whole step. The tile unit's gradients, good to 1e-5,
  // leave float's end state (2e-4 from double) by 3e-3.
  const double after_adam = GetParam() == "amx" ? 5e-3 : kLoose;
  EXPECT_LT(relative_error(method->encoder().forward(v1[0]), golden("ebclr_train10.features_end")),
            after_adam);
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const cpu::Kernels* k : cpu::available_kernels()) names.emplace_back(k->name);
  return names;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenEngine);
INSTANTIATE_TEST_SUITE_P(Sets, GoldenEngine, ::testing::ValuesIn(instruction_sets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebclr::engine
