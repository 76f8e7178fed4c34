#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "golden.h"
#include "methods/method.h"

namespace ebclr::methods {
namespace {
using testing::golden;
using testing::golden_float;
using testing::relative_error;

MethodContext context(torch::Tensor proposals) {
  return {.data_proposals =
              [proposals](int64_t n, core::Rng& rng) {
                std::vector<torch::Tensor> rows;
                for (int64_t i = 0; i < n; ++i)
                  rows.push_back(
                      proposals[static_cast<int64_t>(rng.below(static_cast<uint64_t>(proposals.size(0))))]);
                return torch::stack(rows);
              },
          .image_shape = {3, proposals.size(2), proposals.size(3)},
          .train_images = 8};
}

MethodOptions small_ebclr() {
  MethodOptions o;
  o.encoder.width = 8;
  o.head = {.hidden = 64, .out = 16};
  o.ebclr.buffer.size = 32;
  o.ebclr.sampler.steps = 2;
  return o;
}

std::map<std::string, double> metrics_of(const StepOutput& out) {
  return {out.metrics.begin(), out.metrics.end()};
}

TEST(Ebclr, GoldenTenTrainingSteps) {
  // Eight chains that persist: a buffer of eight, never re-initialised. Slots are picked in random order, so
  // the chains are compared as a set; the loss does not depend on their order.
  auto o = small_ebclr();
  o.ebclr.buffer = {.size = 8, .rho = 0};
  o.ebclr.sampler = {.steps = 5, .sigma_min = 0, .sigma_max = 0};
  const auto start = golden_float("ebclr_train10.chain_start");
  auto method = make_method(o, context(start));
  testing::fill_golden(method->head(), testing::fill_golden(method->encoder(), 0));
  method->buffer()->chains().copy_(start);
  auto groups = method->parameter_groups();
  torch::optim::Adam adam(groups[0].parameters, torch::optim::AdamOptions(2e-4));
  const auto v1 = golden_float("ebclr_train10.view1"), v2 = golden_float("ebclr_train10.view2");
  const auto losses = golden("ebclr_train10.losses");
  for (int64_t t = 0; t < 10; ++t) {
    const StepInput input{v1[t], v2[t], t, 0.1 * static_cast<double>(t)};
    auto out = method->step(input);
    EXPECT_NEAR(out.loss.item<double>() / losses[t].item<double>(), 1, 1e-4) << "step " << t;
    adam.zero_grad();
    out.loss.backward();
    adam.step();
    method->after_update(input);
  }
  EXPECT_LT(relative_error(method->buffer()->chains(), golden("ebclr_train10.chain_end")), 2e-3);
  torch::NoGradGuard guard;
  EXPECT_LT(relative_error(method->encoder().forward(v1[0]), golden("ebclr_train10.features_end")), 2e-3);
}

TEST(Ebclr, ReportsWhatItDoes) {
  auto method = make_method(small_ebclr(), context(torch::rand({4, 3, 16, 16}) * 2 - 1));
  const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
  const auto m = metrics_of(method->step(input));
  for (const char* key : {"disc", "energy_data", "energy_samples", "gap", "output_norm", "out_of_range",
                          "chain_age", "sgld_steps"})
    EXPECT_TRUE(m.count(key)) << key;
  EXPECT_NEAR(m.at("gap"), m.at("energy_samples") - m.at("energy_data"), 1e-9);
  EXPECT_EQ(m.at("chain_age"), 0);
}

TEST(Ebclr, CountsForwardUnits) {
  auto o = small_ebclr();
  o.ebclr.sampler.steps = 10;
  EXPECT_EQ(make_method(o, context(torch::zeros({2, 3, 16, 16})))->forward_units(64), 29);
  o.ebclr.objective.lambda = 0;
  EXPECT_EQ(make_method(o, context(torch::zeros({2, 3, 16, 16})))->forward_units(64), 6);
}

TEST(Ebclr, FewChainsCostTheirShareAndNothingIsBuiltToKnowIt) {
  auto o = small_ebclr();
  o.ebclr.sampler.steps = 5;
  EXPECT_EQ(forward_units(o, 64), 6 + 13);
  o.ebclr.chains = 8;
  EXPECT_DOUBLE_EQ(forward_units(o, 64), 6 + 13.0 / 8);  // 6 + c (2 T + 3)
  EXPECT_DOUBLE_EQ(forward_units(o, 16), 6 + 13.0 / 2);
  o.ebclr.chains = 0.125;
  EXPECT_DOUBLE_EQ(forward_units(o, 64), 6 + 13.0 / 8);
  auto ctx = context(torch::zeros({2, 3, 16, 16}));
  ctx.batch = 64;
  EXPECT_EQ(make_method(o, ctx)->forward_units(64), forward_units(o, 64));
  // YOPO: inner steps cost what lies before the cut, the first of them nothing.
  o.ebclr.chains = 0;
  o.ebclr.sampler = {.kind = ebm::SamplerKind::kYopo, .outer = 4, .inner = 1};
  EXPECT_DOUBLE_EQ(forward_units(o, 64), 6 + 3 + 8);
  o.ebclr.sampler.inner = 3;
  o.ebclr.cut = 1;
  EXPECT_DOUBLE_EQ(forward_units(o, 64), 6 + 3 + 8 + 4 * 2 * 0.5);
}

TEST(Ebclr, ChainsAreANumberOrAShare) {
  EXPECT_EQ(chains_of(0, 64), 64);
  EXPECT_EQ(chains_of(8, 64), 8);
  EXPECT_EQ(chains_of(0.125, 64), 8);
  EXPECT_EQ(chains_of(0.001, 64), 1);
  EXPECT_EQ(chains_of(96, 64), 96);
  testing::expect_error(
      core::ExitCode::kUsage, [] { chains_of(2.5, 64); }, "sampler.chains", "2.5");
  EXPECT_EQ(buffer_size_of(5000, 0, 64), 5000);
  EXPECT_EQ(buffer_size_of(5000, 8, 64), 625);
  EXPECT_EQ(buffer_size_of(5, 8, 64), 8) << "room for a step's chains";
}

TEST(Ebclr, FewChainsAreVisitedAsOften) {
  auto o = small_ebclr();
  o.ebclr.chains = 2;
  o.ebclr.buffer = {.size = 32, .rho = 0};
  auto ctx = context(torch::rand({4, 3, 16, 16}) * 2 - 1);
  ctx.batch = 8;
  auto method = make_method(o, ctx);
  EXPECT_EQ(method->buffer()->size(), 8);
  const StepInput input{torch::rand({8, 3, 16, 16}), torch::rand({8, 3, 16, 16})};
  for (int i = 0; i < 20; ++i) {
    method->step(input);
    method->after_update(input);
  }
  EXPECT_EQ(method->buffer()->counts().sum().item<int64_t>(), 40);
}

TEST(Ebclr, BalanceMovesItsSettingAndSurvivesACheckpoint) {
  struct Row {
    ebm::BalanceKind kind;
    const char* metric;
    double first;
    bool grows;
  };
  for (const auto& row : {Row{ebm::BalanceKind::kStepSize, "step_size", 0.05, true},
                          Row{ebm::BalanceKind::kSteps, "sgld_steps", 2, true},
                          Row{ebm::BalanceKind::kLambda, "lambda", 0.1, false}}) {
    auto o = small_ebclr();
    o.ebclr.balance = {
        .kind = row.kind, .target = -1e9, .rate = 0.5, .window = 2};  // the gap is always too large
    const auto ctx = context(torch::zeros({2, 3, 16, 16}));
    auto method = make_method(o, ctx);
    const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
    std::vector<double> seen;
    for (int i = 0; i < 5; ++i) {
      seen.push_back(metrics_of(method->step(input)).at(row.metric));
      method->after_update(input);
    }
    EXPECT_EQ(seen[0], row.first) << row.metric;
    EXPECT_EQ(seen[1], row.first) << row.metric;
    if (row.grows)
      EXPECT_GT(seen[2], seen[1]) << row.metric;
    else
      EXPECT_LT(seen[2], seen[1]) << row.metric;
    auto again = make_method(o, ctx);
    again->load_small_state(nlohmann::json::parse(method->small_state().dump()));
    EXPECT_EQ(metrics_of(again->step(input)).at(row.metric), metrics_of(method->step(input)).at(row.metric));
    EXPECT_EQ(again->forward_units(4), method->forward_units(4));
  }
}

TEST(Ebclr, TheValueOfABalanceGoesWhereItBelongs) {
  EbclrOptions o;
  apply_balance(o, 0.3);  // none: nothing moves
  EXPECT_EQ(o.sampler.step_size, 0.05);
  o.balance.kind = ebm::BalanceKind::kStepSize;
  apply_balance(o, 0.3);
  EXPECT_EQ(o.sampler.step_size, 0.3);
  o.balance.kind = ebm::BalanceKind::kLambda;
  apply_balance(o, 0.02);
  EXPECT_EQ(o.objective.lambda, 0.02);
  o.balance.kind = ebm::BalanceKind::kNone;
  o.adaptive.on = true;
  apply_balance(o, 15);
  EXPECT_EQ(o.sampler.steps, 15);
}

TEST(Ebclr, AdaptiveStepsAndABalanceExcludeEachOther) {
  auto o = small_ebclr();
  o.ebclr.adaptive.on = true;
  o.ebclr.balance.kind = ebm::BalanceKind::kLambda;
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        make_method(o, context(torch::zeros({2, 3, 16, 16})));
      },
      "adaptive.on", "balance.kind");
}

TEST(Ebclr, WithoutGenerativeTermKeepsNoChains) {
  auto o = small_ebclr();
  o.ebclr.objective.lambda = 0;
  auto method = make_method(o, context(torch::zeros({2, 3, 16, 16})));
  EXPECT_EQ(method->buffer(), nullptr);
  const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
  EXPECT_TRUE(std::isfinite(method->step(input).loss.item<double>()));
}

TEST(Ebclr, ChainsReturnToTheBufferOnlyAfterTheUpdate) {
  auto method = make_method(small_ebclr(), context(torch::zeros({2, 3, 16, 16})));
  const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
  method->step(input);
  EXPECT_EQ(method->buffer()->counts().sum().item<int64_t>(), 0);
  method->after_update(input);
  EXPECT_EQ(method->buffer()->counts().sum().item<int64_t>(), 4);
}

TEST(Ebclr, SmallStateContinuesTheRandomness) {
  auto o = small_ebclr();
  const auto ctx = context(torch::rand({4, 3, 16, 16}) * 2 - 1);
  auto a = make_method(o, ctx), b = make_method(o, ctx);
  const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
  a->step(input);
  a->after_update(input);
  b->load_small_state(nlohmann::json::parse(a->small_state().dump()));
  b->buffer()->chains().copy_(a->buffer()->chains());
  b->buffer()->counts().copy_(a->buffer()->counts());
  EXPECT_EQ(a->step(input).loss.item<float>(), b->step(input).loss.item<float>());
  a->after_update(input);
  b->after_update(input);
  EXPECT_TRUE(torch::equal(a->buffer()->chains(), b->buffer()->chains()));
}

TEST(Ebclr, AdaptiveStepsGrowWhenChainsLagBehind) {
  auto o = small_ebclr();
  o.ebclr.adaptive = {.on = true, .window = 2, .threshold = -1e9, .increment = 5, .limit = 9};
  auto method = make_method(o, context(torch::zeros({2, 3, 16, 16})));
  const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
  std::vector<double> steps;
  for (int i = 0; i < 6; ++i) {
    steps.push_back(metrics_of(method->step(input)).at("sgld_steps"));
    method->after_update(input);
  }
  EXPECT_EQ(steps, (std::vector<double>{2, 2, 7, 7, 9, 9}));
  o.ebclr.adaptive.threshold = 1e9;
  auto calm = make_method(o, context(torch::zeros({2, 3, 16, 16})));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(metrics_of(calm->step(input)).at("sgld_steps"), 2);
    calm->after_update(input);
  }
}

TEST(Ebclr, ReportsTheStepsOfAVisit) {
  auto o = small_ebclr();
  o.ebclr.sampler.kind = ebm::SamplerKind::kYopo;
  o.ebclr.sampler.outer = 3;
  o.ebclr.sampler.inner = 2;
  auto method = make_method(o, context(torch::zeros({2, 3, 16, 16})));
  const StepInput input{torch::rand({4, 3, 16, 16}), torch::rand({4, 3, 16, 16})};
  EXPECT_EQ(metrics_of(method->step(input)).at("sgld_steps"), 6);
}

TEST(Ebclr, WarnsOfBatchNormUnderItsChains) {
  const auto warnings = [](const MethodOptions& o) {
    return make_method(o, context(torch::zeros({2, 3, 16, 16})))->warnings();
  };
  auto o = small_ebclr();
  EXPECT_TRUE(warnings(o).empty());
  o.head.hidden_norm = true;
  EXPECT_EQ(warnings(o).size(), 1u);
  o.ebclr.objective.lambda = 0;
  EXPECT_TRUE(warnings(o).empty()) << "there are no chains";
  auto encoder = small_ebclr();
  encoder.encoder.norm = nn::Norm::kBatch;
  ASSERT_EQ(warnings(encoder).size(), 1u);
  EXPECT_NE(warnings(encoder)[0].find("BatchNorm"), std::string::npos);
}

TEST(Ebclr, UniformProposalsFillTheRange) {
  auto o = small_ebclr();
  o.ebclr.proposal = Proposal::kUniform;
  auto method = make_method(o, context(torch::full({2, 3, 16, 16}, 0.5)));
  const auto& chains = method->buffer()->chains();
  EXPECT_NEAR(chains.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(chains.std().item<double>(), 2 / std::sqrt(12.0), 0.02);
  EXPECT_LE(chains.abs().max().item<double>(), 1);
}

TEST(Ebclr, ReseedStartsChainsAnew) {
  auto method = make_method(small_ebclr(), context(torch::rand({16, 3, 16, 16})));
  const auto before = method->buffer()->chains().clone();
  method->reseed(99);
  EXPECT_FALSE(torch::equal(before, method->buffer()->chains()));
}

TEST(MakeMethod, NamesTheChoices) {
  auto o = small_ebclr();
  o.name = "simclear";
  testing::expect_error(
      core::ExitCode::kUsage, [&] { make_method(o, {}); }, "simclear", "ebclr, simclr, moco, simsiam, byol");
}

}  // namespace
}  // namespace ebclr::methods
