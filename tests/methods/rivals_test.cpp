#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "ebm/objective.h"
#include "golden.h"
#include "methods/method.h"

namespace ebclr::methods {
namespace {

MethodOptions small_rival(const std::string& name) {
  MethodOptions o;
  o.name = name;
  o.encoder = {.width = 8, .channels = 1, .norm = nn::Norm::kBatch, .activation = nn::Activation::kRelu};
  o.head = {.hidden = 32, .out = 16, .hidden_norm = true, .activation = nn::Activation::kRelu};
  o.simsiam.predictor_hidden = 8;
  o.byol.predictor_hidden = 32;
  o.moco.queue = 10;
  o.moco.momentum = 0.9;
  o.byol.momentum = 0.8;
  o.ebclr.objective.lambda = 0;  // supervised: no chains
  return o;
}

StepInput batch(int64_t n, int64_t seed) {
  torch::manual_seed(seed);
  StepInput input{torch::rand({n, 1, 16, 16}) * 2 - 1, torch::rand({n, 1, 16, 16}) * 2 - 1};
  input.labels = torch::arange(n) % 3;
  return input;
}

torch::Tensor state_named(Method& method, const std::string& name) {
  for (auto& [key, value] : method.state())
    if (key == name) return value;
  ADD_FAILURE() << "no state named " << name;
  return {};
}

void update(Method& method, const StepInput& input, double lr = 0.1) {
  std::vector<torch::Tensor> all;
  for (auto& g : method.parameter_groups()) all.insert(all.end(), g.parameters.begin(), g.parameters.end());
  torch::optim::SGD sgd(all, torch::optim::SGDOptions(lr));
  sgd.zero_grad();
  method.step(input).loss.backward();
  sgd.step();
  method.after_update(input);
}

class EveryRival : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryRival, LearnsToLowerItsLossOnOneBatch) {
  auto method = make_method(small_rival(GetParam()), {});
  const auto input = batch(16, 1);
  double first = 0, last = 0;
  for (int i = 0; i < 20; ++i) {
    const double loss = method->step(input).loss.item<double>();
    if (i == 0) first = loss;
    last = loss;
    update(*method, input, 0.05);
  }
  EXPECT_TRUE(std::isfinite(last));
  EXPECT_LT(last, first);
}

TEST_P(EveryRival, StateHoldsEverythingThatMoves) {
  // Two methods with the same state must go on identically, BatchNorm statistics, targets and queues
  // included.
  auto a = make_method(small_rival(GetParam()), {}), b = make_method(
                                                         [&] {
                                                           auto o = small_rival(GetParam());
                                                           o.seed = 5;
                                                           return o;
                                                         }(),
                                                         {});
  for (int i = 0; i < 3; ++i) update(*a, batch(8, i));
  {
    torch::NoGradGuard guard;
    auto from = a->state(), to = b->state();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(from[i].first, to[i].first);
      to[i].second.copy_(from[i].second);
    }
    b->load_small_state(a->small_state());
  }
  for (int i = 3; i < 6; ++i) {
    EXPECT_EQ(a->step(batch(8, i)).loss.item<float>(), b->step(batch(8, i)).loss.item<float>());
    update(*a, batch(8, i));
    update(*b, batch(8, i));
  }
  a->train(false);
  b->train(false);
  const auto x = batch(4, 77).view1;
  torch::NoGradGuard guard;
  EXPECT_TRUE(torch::equal(a->encoder().forward(x), b->encoder().forward(x)));
}

INSTANTIATE_TEST_SUITE_P(Rivals, EveryRival,
                         ::testing::Values("simclr", "moco", "simsiam", "byol", "supervised"));

TEST(Rivals, CostInForwardUnits) {
  for (const auto& [name, units] :
       {std::pair{"simclr", 6.0}, {"moco", 4.0}, {"simsiam", 6.0}, {"byol", 8.0}, {"supervised", 6.0}})
    EXPECT_EQ(make_method(small_rival(name), {})->forward_units(64), units) << name;
}

TEST(Simclr, NormFreeIsEbclrWithoutItsGenerativeTerm) {
  auto o = small_rival("simclr");
  o.encoder = {.width = 8, .channels = 1};
  o.head = {.hidden = 64, .out = 16};
  o.simclr.temperature = 0.05;  // tau 0.1 on squared distance
  auto simclr = make_method(o, {});
  o.name = "ebclr";
  o.ebclr.objective.lambda = 0;
  auto ebclr = make_method(o, {.data_proposals = {}, .image_shape = {1, 16, 16}, .train_images = 0});
  const auto input = batch(8, 1);
  EXPECT_FLOAT_EQ(simclr->step(input).loss.item<float>(), ebclr->step(input).loss.item<float>());
}

TEST(Moco, KeyNetworkMovesByTheMomentumRule) {
  auto method = make_method(small_rival("moco"), {});
  auto key = state_named(*method, "key_encoder.conv1.weight"),
       query = state_named(*method, "encoder.conv1.weight");
  EXPECT_TRUE(torch::equal(key, query)) << "starts as a copy";
  const auto before = key.detach().clone();
  update(*method, batch(8, 1));
  EXPECT_TRUE(torch::allclose(key, before * 0.9 + query.detach() * 0.1, 0, 1e-7));
  EXPECT_FALSE(torch::equal(key, before));
}

TEST(Moco, QueueIsFirstInFirstOutAcrossItsEnd) {
  auto method = make_method(small_rival("moco"), {});  // queue of 10, batches of 4
  auto queue = state_named(*method, "queue"), position = state_named(*method, "queue_position");
  const auto start = queue.clone();
  EXPECT_TRUE(torch::allclose(queue.norm(2, 1), torch::ones({10}), 0, 1e-5));
  std::vector<torch::Tensor> after;
  for (int i = 0; i < 3; ++i) {
    update(*method, batch(4, i));
    after.push_back(queue.clone());
  }
  EXPECT_EQ(position.item<int64_t>(), 12 % 10);
  EXPECT_TRUE(torch::equal(after[0].narrow(0, 4, 6), start.narrow(0, 4, 6))) << "rows 4..9 wait their turn";
  EXPECT_FALSE(torch::equal(after[0].narrow(0, 0, 4), start.narrow(0, 0, 4)));
  EXPECT_TRUE(torch::equal(after[1].narrow(0, 0, 4), after[0].narrow(0, 0, 4)));
  // The third batch fills rows 8, 9 and then 0, 1; rows 2..7 stay.
  EXPECT_TRUE(torch::equal(after[2].narrow(0, 2, 6), after[1].narrow(0, 2, 6)));
  for (int64_t row : {8, 9, 0, 1}) EXPECT_FALSE(torch::equal(after[2][row], after[1][row])) << row;
  EXPECT_TRUE(torch::allclose(queue.norm(2, 1), torch::ones({10}), 0, 1e-5)) << "keys are unit rows";
}

TEST(Moco, SymmetricEnqueuesBothViews) {
  auto o = small_rival("moco");
  o.moco.symmetric = true;
  auto method = make_method(o, {});
  update(*method, batch(3, 1));
  EXPECT_EQ(state_named(*method, "queue_position").item<int64_t>(), 6);
  EXPECT_EQ(method->forward_units(64), 8);
}

TEST(Byol, TargetStartsAsACopyAndFollowsTheCosine) {
  auto method = make_method(small_rival("byol"), {});
  auto target = state_named(*method, "target_encoder.layer1.0.conv1.weight");
  auto online = state_named(*method, "encoder.layer1.0.conv1.weight");
  EXPECT_TRUE(torch::equal(target, online));
  for (double progress : {0.0, 0.5}) {
    const auto before = target.detach().clone();
    auto input = batch(8, 2);
    input.progress = progress;
    update(*method, input);
    const double m = 1 - 0.2 * (std::cos(M_PI * progress) + 1) / 2;
    EXPECT_TRUE(torch::allclose(target, before * m + online.detach() * (1 - m), 0, 1e-6)) << progress;
  }
}

TEST(Byol, TheLossIsTheSumOfBothDirections) {
  auto method = make_method(small_rival("byol"), {});
  const auto input = batch(8, 2);
  const auto loss = method->step(input).loss.item<double>();
  // The target begins as a copy, so both sides of a pair are this network's own outputs.
  const auto modules = method->modules();
  const auto predictor =
      std::find_if(modules.begin(), modules.end(), [](const auto& m) { return m.name == "predictor"; });
  ASSERT_NE(predictor, modules.end());
  auto& predict = dynamic_cast<nn::Head&>(*predictor->module);
  const auto out = [&](const torch::Tensor& view) {
    return method->head().forward(method->encoder().forward(view));
  };
  const auto z1 = out(input.view1), z2 = out(input.view2);
  const auto distance = [](const torch::Tensor& p, const torch::Tensor& t) {  // of unit rows, squared
    return (torch::nn::functional::normalize(p) - torch::nn::functional::normalize(t)).square().sum(1).mean();
  };
  const auto both = distance(predict.forward(z1), z2) + distance(predict.forward(z2), z1);
  EXPECT_NEAR(loss, both.item<double>(), 1e-4 * loss);
}

TEST(Rivals, NoGradientReachesTargetOrKeys) {
  for (const char* name : {"moco", "byol"}) {
    auto method = make_method(small_rival(name), {});
    method->step(batch(8, 1)).loss.backward();
    for (auto& [key, value] : method->state())
      if (key.starts_with("key_") || key.starts_with("target_")) {
        EXPECT_FALSE(value.grad().defined()) << key;
      }
    EXPECT_TRUE(state_named(*method, "encoder.conv1.weight").grad().defined());
  }
}

TEST(Simsiam, PredictorCanKeepItsLearningRate) {
  auto o = small_rival("simsiam");
  auto groups = make_method(o, {})->parameter_groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_FALSE(groups[0].fixed_lr);
  EXPECT_TRUE(groups[1].fixed_lr);
  o.simsiam.fixed_predictor_lr = false;
  groups = make_method(o, {})->parameter_groups();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_FALSE(groups[0].fixed_lr);
}

TEST(Simsiam, CollapsesWithoutStopGradientAndTheSpreadShowsIt) {
  auto o = small_rival("simsiam");
  o.head.output_norm = false;
  o.head.hidden_norm = false;
  o.encoder.norm = nn::Norm::kNone;
  o.simsiam.stop_gradient = false;
  auto method = make_method(o, {});
  for (int i = 0; i < 60; ++i) update(*method, batch(16, i), 0.2);
  const double healthy = 1 / std::sqrt(16.0);
  EXPECT_LT(projection_spread(method->step(batch(16, 100)).projections), 0.1 * healthy);
  EXPECT_NEAR(projection_spread(torch::randn({4000, 16})), healthy, 0.01);
}

MethodOptions labelled_options(double lambda) {
  auto o = small_rival("supervised");
  o.encoder = {.width = 8, .channels = 1};
  o.head = {.out = 3, .layers = 1};
  o.ebclr.objective.lambda = lambda;
  o.ebclr.sampler.steps = 3;
  o.ebclr.buffer.size = 20;
  return o;
}

MethodContext chains_from_noise() {
  return {.data_proposals = ebm::uniform_proposals({1, 16, 16}), .image_shape = {1, 16, 16}, .batch = 8};
}

TEST(Supervised, LossIsTheMeanCrossEntropyOfBothViews) {
  auto method = make_method(labelled_options(0), {});
  const auto input = batch(6, 4);
  const auto out = method->step(input);
  double want = 0;
  {
    torch::NoGradGuard guard;
    for (const auto& view : {input.view1, input.view2}) {
      const auto logits = method->head().forward(method->encoder().forward(view)).to(torch::kFloat64);
      for (int64_t i = 0; i < 6; ++i) {
        double z = 0;
        for (int64_t y = 0; y < 3; ++y) z += std::exp(logits[i][y].item<double>());
        want += (std::log(z) - logits[i][input.labels[i].item<int64_t>()].item<double>()) / 12;
      }
    }
  }
  EXPECT_NEAR(out.loss.item<double>(), want, 1e-5);
  EXPECT_FALSE(out.projections.defined()) << "logits of a young classifier may all be alike: no collapse";
  EXPECT_EQ(method->buffer(), nullptr) << "without a generative term there are no chains";
}

TEST(Supervised, JointObjectiveAddsLambdaTimesTheGenerativeTermAndKeepsItsChains) {
  const auto input = batch(8, 4);
  auto plain = make_method(labelled_options(0), {});
  auto joint = make_method(labelled_options(0.3), chains_from_noise());
  const double entropy = plain->step(input).loss.item<double>();
  auto out = joint->step(input);
  std::map<std::string, double> m(out.metrics.begin(), out.metrics.end());
  EXPECT_NEAR(m.at("cross_entropy"), entropy, 1e-6) << "both start from the same weights";
  const double l2 = labelled_options(0.3).ebclr.objective.output_l2;
  EXPECT_NEAR(out.loss.item<double>() - entropy, 0.3 * -m.at("gap"),
              0.3 * l2 * 4 * (1 + std::pow(m.at("energy_data"), 2) + std::pow(m.at("energy_samples"), 2)));
  joint->after_update(input);
  EXPECT_EQ(joint->buffer()->counts().sum().item<int64_t>(), 8) << "eight chains were visited";
  EXPECT_EQ(joint->forward_units(8), 6 + 2 * 3 + 3);
  // Both terms learn.
  const double before = m.at("gap");
  for (int i = 0; i < 10; ++i) update(*joint, input, 0.05);
  out = joint->step(input);
  m = {out.metrics.begin(), out.metrics.end()};
  EXPECT_LT(m.at("cross_entropy"), entropy);
  EXPECT_NE(m.at("gap"), before);
}

TEST(Supervised, RefusesImagesWithoutLabels) {
  auto method = make_method(labelled_options(0), {});
  auto input = batch(4, 1);
  input.labels = torch::tensor({0, 1, -1, 2}, torch::kInt64);
  EXPECT_THROW(method->step(input), core::Error);
  input.labels = torch::tensor({0, 1, 3, 2}, torch::kInt64);
  EXPECT_THROW(method->step(input), core::Error);
  input.labels = torch::Tensor();
  EXPECT_THROW(method->step(input), core::Error);
  auto o = labelled_options(0);
  EXPECT_THROW(fit_to_classes(o, 1), core::Error);
  fit_to_classes(o, 7);
  EXPECT_EQ(o.head.out, 7);
}

}  // namespace
}  // namespace ebclr::methods
