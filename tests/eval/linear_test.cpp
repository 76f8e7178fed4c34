#include "eval/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "helpers.h"

namespace ebclr::eval {
namespace {

using ::testing::HasSubstr;

ProbeOptions quick_probe(int64_t epochs = 30) {
  return {.epochs = epochs, .batch_size = 32};
}

TEST(Probe, GridIsThePapers) {
  const auto rates = ProbeOptions{}.rates;
  ASSERT_EQ(rates.size(), 10u);
  EXPECT_NEAR(rates.front(), 1e-4, 1e-12);
  EXPECT_NEAR(rates.back(), 1e-1, 1e-9);
  EXPECT_NEAR(rates[1] / rates[0], rates[9] / rates[8], 1e-9);
}

TEST(Probe, EachRateTrainsAsIfAlone) {
  // The plain way: one torch::nn::Linear and torch::optim::Adam per rate, on the same batches.
  const Labelled train = blobs(3, 27, 6, 0.7, 1);  // 81 images: the last batch is smaller
  const ProbeOptions options{.epochs = 12, .batch_size = 32, .rates = {1e-3, 1e-2, 1e-1}, .seed = 4};
  const Probe probe = train_probe(train, 3, options);
  for (size_t r = 0; r < options.rates.size(); ++r) {
    torch::nn::Linear plain(6, 3);
    const auto [weight, bias] = probe_start(3, 6, options.seed);
    {
      torch::NoGradGuard no_grad;
      plain->weight.copy_(weight);
      plain->bias.copy_(bias);
    }
    torch::optim::Adam adam(plain->parameters(), torch::optim::AdamOptions(options.rates[r]));
    for (int64_t e = 0; e < options.epochs; ++e) {
      const auto order = probe_order(81, options.seed, e);
      for (int64_t i = 0; i < 81; i += 32) {
        const auto rows = order.narrow(0, i, std::min<int64_t>(32, 81 - i));
        adam.zero_grad();
        torch::nn::functional::cross_entropy(plain(train.features.index_select(0, rows)),
                                             train.labels.index_select(0, rows))
            .backward();
        adam.step();
      }
    }
    EXPECT_LT((probe.weight[r] - plain->weight).abs().max().item<float>(), 1e-4) << options.rates[r];
    EXPECT_LT((probe.bias[r] - plain->bias).abs().max().item<float>(), 1e-4) << options.rates[r];
    const auto predicted = plain(train.features).argmax(1);
    EXPECT_TRUE(probe.predict(train.features)[r].equal(predicted));
  }
}

TEST(Probe, SeparableFeaturesReachHundredPercent) {
  const Labelled train = blobs(5, 40, 8, 8, 1), test = blobs(5, 30, 8, 8, 2);
  for (auto protocol : {ProbeProtocol::kHonest, ProbeProtocol::kPaper}) {
    ProbeOptions options = quick_probe();
    options.protocol = protocol;
    const ProbeResult r = linear_probe(train, test, 5, options);
    EXPECT_EQ(r.test.accuracy, 1) << name(protocol);
    EXPECT_EQ(r.probe.weight.size(0), 1);
  }
}

TEST(Probe, RandomLabelsStayAtChance) {
  Labelled train{normal({600, 8}, 1), torch::arange(600, torch::kInt64) % 4};
  Labelled test{normal({1000, 8}, 2), torch::arange(1000, torch::kInt64) % 4};
  const Score s = linear_probe(train, test, 4, quick_probe(10)).test;
  EXPECT_LT(s.accuracy, 0.32);
  EXPECT_GT(s.accuracy, 0.18);
}

TEST(Probe, HonestProtocolNeverTouchesTestLabels) {
  const Labelled train = blobs(3, 40, 6, 1.2, 1), test = blobs(3, 40, 6, 1.2, 2);
  Labelled poisoned = test;
  poisoned.labels = (test.labels + 1) % 3;
  const ProbeOptions options = quick_probe(8);
  const ProbeResult clean = linear_probe(train, test, 3, options),
                    dirty = linear_probe(train, poisoned, 3, options);
  EXPECT_EQ(clean.best, dirty.best);
  EXPECT_EQ(clean.grid_accuracy, dirty.grid_accuracy);
  EXPECT_TRUE(clean.probe.weight.equal(dirty.probe.weight));
  EXPECT_TRUE(clean.probe.bias.equal(dirty.probe.bias));
  EXPECT_GT(clean.test.accuracy, 0.8);
  EXPECT_LT(dirty.test.accuracy, 0.2);
  // The paper's protocol does read them: the same poison changes what it reports for the grid.
  ProbeOptions paper = options;
  paper.protocol = ProbeProtocol::kPaper;
  const ProbeResult best = linear_probe(train, test, 3, paper);
  EXPECT_NE(best.grid_accuracy, linear_probe(train, poisoned, 3, paper).grid_accuracy);
  EXPECT_DOUBLE_EQ(best.test.accuracy,
                   *std::max_element(best.grid_accuracy.begin(), best.grid_accuracy.end()));
  EXPECT_THAT(std::string(label(paper.protocol)), HasSubstr("chosen on test"));
}

TEST(Probe, WinnerIsRefittedOnAllOfTrain) {
  const Labelled train = blobs(3, 30, 5, 1.5, 1);
  const ProbeOptions options = quick_probe(5);
  const ProbeResult r = fit_probe(train, 3, options);
  ProbeOptions one = options;
  one.rates = {options.rates[r.best]};
  EXPECT_TRUE(r.probe.weight.equal(train_probe(train, 3, one).weight));
}

TEST(Probe, StandardisationHelpsBadlyScaledFeatures) {
  Labelled train = blobs(3, 60, 6, 3, 1), test = blobs(3, 60, 6, 3, 2);
  for (Labelled* part : {&train, &test}) {
    part->features = part->features * 1e-3 + 5;
    part->features = torch::cat({part->features, torch::full({180, 1}, 2.f)}, 1);  // one constant feature
  }
  ProbeOptions plain = quick_probe(10), standard = quick_probe(10);
  standard.standardise = true;
  EXPECT_GT(linear_probe(train, test, 3, standard).test.accuracy, 0.97);
  EXPECT_LT(linear_probe(train, test, 3, plain).test.accuracy, 0.9);
}

TEST(Probe, OneRateMayDiverge) {
  Labelled train = blobs(3, 30, 5, 3, 1);
  train.features = train.features * 1e18;
  ProbeOptions options = quick_probe(5);
  options.rates = {1e-3, 1e30};
  const ProbeResult r = fit_probe(train, 3, options);
  EXPECT_EQ(r.best, 0);
}

TEST(Split, IsStratifiedSeededAndDisjoint) {
  const auto labels = torch::cat({torch::zeros({50}, torch::kInt64), torch::ones({10}, torch::kInt64),
                                  torch::full({2}, 2, torch::kInt64), torch::full({1}, 3, torch::kInt64)});
  const auto [rest, held] = stratified_split(labels, 0.1, 7);
  EXPECT_EQ(rest.numel() + held.numel(), 63);
  EXPECT_TRUE(std::get<0>(torch::cat({rest, held}).sort()).equal(torch::arange(63)));
  const auto counts = torch::bincount(labels.index_select(0, held), {}, 4);
  EXPECT_TRUE(counts.equal(torch::tensor({5, 1, 1, 0}, torch::kInt64)));  // a lone image is never held out
  EXPECT_TRUE(stratified_split(labels, 0.1, 7).second.equal(held));
  EXPECT_FALSE(stratified_split(labels, 0.1, 8).second.equal(held));
}

TEST(Draws, AreBalancedAndSeeded) {
  const auto labels = torch::arange(40, torch::kInt64) % 4;
  const auto a = draw_per_class(labels, 3, 1);
  EXPECT_EQ(a.numel(), 12);
  EXPECT_TRUE(labels.index_select(0, a).bincount().eq(3).all().item<bool>());
  EXPECT_TRUE(a.equal(draw_per_class(labels, 3, 1)));
  EXPECT_FALSE(a.equal(draw_per_class(labels, 3, 2)));
  EXPECT_THAT(error_of([&] { draw_per_class(labels, 11, 1); }),
              HasSubstr("class 0 has 10 train images; use 10 or fewer"));
}

TEST(LabelEfficiency, MoreLabelsAreBetter) {
  const Labelled train = blobs(3, 60, 8, 1.0, 1), test = blobs(3, 80, 8, 1.0, 2);
  ProbeOptions options = quick_probe(20);
  options.rates = {1e-2, 1e-1};
  const auto rows = label_efficiency(train, test, 3, {1, 50}, 3, options);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].labels_per_class, 1);
  EXPECT_EQ(rows[0].accuracies.size(), 3u);
  EXPECT_GT(rows[1].accuracy.mean, rows[0].accuracy.mean);
  EXPECT_GT(rows[0].accuracy.deviation, 0);
}

TEST(Probe, RefusesWhatCannotWork) {
  const Labelled train = blobs(2, 10, 4, 3, 1);
  Labelled one = train;
  one.labels = torch::ones_like(train.labels);
  EXPECT_THAT(error_of([&] { linear_probe(one, train, 2, quick_probe(1)); }),
              HasSubstr("two classes or more"));
  Labelled nan = train;
  nan.features = train.features.clone();
  nan.features[0][0] = std::nanf("");
  EXPECT_THAT(error_of([&] { linear_probe(nan, train, 2, quick_probe(1)); }),
              HasSubstr("train images are NaN"));
  EXPECT_THAT(error_of([&] { linear_probe(train, nan, 2, quick_probe(1)); }),
              HasSubstr("test images are NaN"));
  Labelled bare = train;
  bare.labels = torch::full_like(train.labels, -1);
  EXPECT_THAT(error_of([&] { linear_probe(bare, train, 2, quick_probe(1)); }),
              HasSubstr("20 of 20 train images have no label"));
  EXPECT_THAT(error_of([] { probe_protocol("fair"); }), HasSubstr("'fair'; use honest or paper"));
  ProbeOptions bad = quick_probe(1);
  bad.rates = {0.0};
  EXPECT_THAT(error_of([&] { linear_probe(train, train, 2, bad); }), HasSubstr("learning rate 0"));
}

}  // namespace
}  // namespace ebclr::eval
