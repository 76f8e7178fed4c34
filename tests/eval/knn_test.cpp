#include "eval/knn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/npy.h"
#include "eval/matmul.h"
#include "helpers.h"

namespace ebclr::eval {
namespace {

using ::testing::HasSubstr;

torch::Tensor golden(const std::string& name) {
  return core::read_npy(std::string(EBCLR_GOLDEN_DIR) + "/knn." + name + ".npy");
}

TEST(Knn, MatchesTheGoldenPredictions) {
  const Labelled train{golden("train").to(torch::kFloat32), golden("train_labels").to(torch::kInt64)};
  const auto test = golden("test").to(torch::kFloat32);
  const int64_t classes = train.labels.max().item<int64_t>() + 1;
  for (auto [protocol, file] : {std::pair{"paper", "pred_l2_k20"},
                                {"dino", "pred_cosine_k20_t07"},
                                {"moco", "pred_cosine_k200_t1"}}) {
    const auto predicted = knn_predict(train, test, classes, knn_protocol(protocol));
    EXPECT_TRUE(predicted.equal(golden(file).to(torch::kInt64))) << protocol;
  }
}

TEST(Knn, BlocksFindWhatOneSortFinds) {
  const auto train = normal({1000, 24}, 1) + 3, queries = normal({130, 24}, 2) + 3;
  for (const char* protocol : {"paper", "dino", "moco"}) {
    KnnOptions options = knn_protocol(protocol);
    const auto expected = nearest_neighbours_reference(train, queries, options);
    for (auto [q, t] : {std::pair{512, 8192}, {7, 33}, {130, 1000}, {1, 64}}) {
      options.query_block = q;
      options.train_block = t;
      const auto found = nearest_neighbours(train, queries, options);
      EXPECT_TRUE(found.indices.equal(expected.indices)) << protocol << " " << q << " x " << t;
      EXPECT_LT((found.values - expected.values).abs().max().item<double>(), 1e-5);
    }
  }
}

// Squares of such features overflow single precision; the scores were then dropped and the sort ran past the
// end.
TEST(Knn, HugeFiniteFeaturesFindTheSameNeighbours) {
  const auto train = normal({300, 24}, 1) + 3, queries = normal({50, 24}, 2) + 3;
  for (const char* protocol : {"paper", "dino", "moco"}) {
    const KnnOptions options = knn_protocol(protocol);
    const auto expected = nearest_neighbours(train, queries, options);
    for (const double factor : {0x1p60, 0x1p90, 0x1p124}) {
      const auto found = nearest_neighbours(train * factor, queries * factor, options);
      EXPECT_TRUE(found.indices.equal(expected.indices)) << protocol << " times " << factor;
      const auto scale = options.cosine ? 1.0 : factor;
      EXPECT_LT((found.values / scale - expected.values).abs().max().item<double>(), 1e-4);
    }
  }
}

TEST(Knn, AnyFloatsGiveKNeighboursInsideTheTrainSet) {
  for (const float odd : {INFINITY, -INFINITY, NAN, 3e38f, -3e38f}) {
    auto train = normal({90, 8}, 1), queries = normal({40, 8}, 2);
    train.narrow(0, 0, 85).fill_(odd);
    queries[3].fill_(odd);
    for (const char* protocol : {"paper", "dino"}) {
      const auto found = nearest_neighbours(train, queries, knn_protocol(protocol));
      EXPECT_GE(found.indices.min().item<int64_t>(), 0) << protocol << " " << odd;
      EXPECT_LT(found.indices.max().item<int64_t>(), 90) << protocol << " " << odd;
      for (int64_t i = 0; i < 40; ++i)
        EXPECT_EQ(std::get<0>(torch::_unique(found.indices[i])).size(0), 20) << "each counts once";
    }
  }
}

TEST(Matmul, EveryLayoutAgreesWithTorch) {
  const auto a = normal({5, 7}, 1), b = normal({7, 3}, 2);
  for (const auto& left : {a, a.t().contiguous().t(), a.repeat({1, 2}).narrow(1, 0, 7)}) {
    for (const auto& right : {b, b.t().contiguous().t()}) {
      auto out = torch::empty({5, 3});
      matmul(left, right, out);
      EXPECT_LT((out - torch::mm(left, right)).abs().max().item<float>(), 1e-5);
    }
  }
  auto one = torch::empty({1, 1});
  matmul(normal({1, 4}, 1), normal({1, 4}, 2).t(), one);  // vectors count as both layouts
  EXPECT_NEAR(one.item<float>(), (normal({4}, 1) * normal({4}, 2)).sum().item<float>(), 1e-6);
}

TEST(Knn, EqualDistancesGoByIndex) {
  const auto train = torch::zeros({100, 4});  // all the same point
  const auto found = nearest_neighbours(train, torch::ones({3, 4}), {.k = 5, .train_block = 16});
  EXPECT_TRUE(found.indices.equal(torch::arange(5).expand({3, 5})));
  const Labelled two{torch::tensor({{1.f}, {-1.f}}), torch::tensor({1, 0}, torch::kInt64)};
  EXPECT_EQ(knn_predict(two, torch::zeros({1, 1}), 2, {.k = 2})[0].item<int64_t>(),
            0);  // equal votes: smaller class
}

TEST(Knn, AZeroDistanceIsNotADivisionByZero) {
  const Labelled train{torch::tensor({{0.f}, {1.f}, {1.1f}}), torch::tensor({2, 0, 0}, torch::kInt64)};
  EXPECT_EQ(knn_predict(train, torch::zeros({1, 1}), 3, {.k = 3})[0].item<int64_t>(), 2);
  // Unit vectors at a tiny temperature would overflow a naive exp.
  KnnOptions sharp = knn_protocol("dino");
  sharp.k = 3;
  sharp.temperature = 1e-4;
  EXPECT_EQ(knn_predict(train, torch::ones({1, 1}), 3, sharp)[0].item<int64_t>(), 0);
}

TEST(Knn, SeparatesBlobsAndNotNoise) {
  const Labelled train = blobs(5, 40, 8, 8, 1), test = blobs(5, 20, 8, 8, 2);
  EXPECT_EQ(knn_score(train, test, 5, knn_protocol("paper")).accuracy, 1);
  EXPECT_EQ(knn_score(train, test, 5, knn_protocol("dino")).accuracy, 1);
  Labelled noise = train;
  core::Rng rng(5);
  for (int64_t i = 0; i < noise.labels.numel(); ++i) noise.features[i] = normal({8}, 1000 + i);
  const double accuracy = knn_score(noise, test, 5, knn_protocol("paper")).accuracy;
  EXPECT_LT(accuracy, 0.45);
}

TEST(Knn, RefusesWhatCannotWork) {
  const Labelled train = blobs(2, 5, 4, 5, 1);
  EXPECT_THAT(error_of([&] { knn_predict(train, train.features, 2, knn_protocol("paper")); }),
              HasSubstr("K = 20 neighbours wanted, but there are only 10 train images; use --k 10 or fewer"));
  EXPECT_THAT(error_of([] { knn_protocol("dine"); }),
              HasSubstr("unknown protocol 'dine'; use paper, dino or moco"));
  Labelled poisoned = train;
  poisoned.features = train.features.clone();
  poisoned.features[3][0] = INFINITY;
  EXPECT_THAT(error_of([&] { knn_score(poisoned, train, 2, {.k = 3}); }), HasSubstr("the first is image 3"));
  EXPECT_THAT(error_of([&] { knn_score(train, poisoned, 2, {.k = 3}); }), HasSubstr("test images are NaN"));
  EXPECT_THAT(error_of([&] {
                nearest_neighbours(train.features, normal({2, 3}, 1), {.k = 1});
              }),
              HasSubstr("4 dimensions, test features 3"));
  Labelled one = train;
  one.labels = torch::zeros_like(train.labels);
  EXPECT_THAT(error_of([&] { knn_score(one, train, 2, {.k = 3}); }), HasSubstr("same label"));
}

TEST(Knn, BenchFindsTheSameNeighbours) {
  const auto train = normal({600, 16}, 1), queries = normal({80, 16}, 2);
  for (const char* protocol : {"paper", "moco"}) {
    const KnnBench bench = bench_knn(train, queries, knn_protocol(protocol), 1);
    EXPECT_GT(bench.same_neighbours, 0.999) << protocol;
    if (bench.faiss_seconds) {
      EXPECT_GT(*bench.faiss_seconds, 0);
    }
  }
}

}  // namespace
}  // namespace ebclr::eval
