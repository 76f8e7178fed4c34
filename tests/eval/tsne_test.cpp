#include "eval/tsne.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/knn.h"
#include "helpers.h"

namespace ebclr::eval {
namespace {

TEST(Pca, FindsTheLongAxisEitherWay) {
  const auto axis = torch::tensor({3.f, 4.f, 0.f}) / 5;
  const auto along = normal({200, 1}, 1) * 10;
  const auto x = along * axis + normal({200, 3}, 2) * 0.01 + 7;
  const auto p = pca(x, 2);
  EXPECT_LT((p.select(1, 0) - (along - along.mean()).squeeze(1)).abs().max().item<double>(), 0.1);
  // Wide features take the other road (Gram matrix); distances in the map must agree.
  const auto wide = torch::cat({x, torch::zeros({200, 300})}, 1);
  EXPECT_LT((pca(wide, 2).select(1, 0) - p.select(1, 0)).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(pca(x, 5).size(1), 5);  // more than there are: zeros
}

TEST(Tsne, AffinitiesHaveTheWantedPerplexity) {
  const auto x = normal({60, 5}, 3).to(torch::kFloat64);
  const auto d = torch::cdist(x, x).square();
  const auto p = tsne_affinities(d, 10).to(torch::kFloat64);
  EXPECT_NEAR(p.sum().item<double>(), 1, 1e-5);
  EXPECT_LT((p - p.t()).abs().max().item<double>(), 1e-12);
  EXPECT_EQ(p.diagonal().abs().max().item<double>(), 0);
  // Equidistant points: every row is uniform over the others, whatever the perplexity.
  const auto equal = torch::ones({6, 6}, torch::kFloat64).fill_diagonal_(0);
  const auto q = tsne_affinities(equal, 2);
  EXPECT_NEAR(q[0][1].item<float>(), 1.0 / 30, 1e-6);
}

TEST(Tsne, KeepsNeighboursOfSeparateBlobs) {
  const Labelled data = blobs(4, 50, 10, 6, 1);
  const auto map = tsne(data.features, {.perplexity = 15, .iterations = 350, .exaggerated = 120});
  ASSERT_EQ(map.size(1), 2);
  ASSERT_TRUE(map.isfinite().all().item<bool>());
  // Each point's nearest other points on the map are of its own blob.
  const auto near = nearest_neighbours(map, map, {.k = 11}).indices.narrow(1, 1, 10).contiguous();
  const auto same = data.labels.index_select(0, near.flatten()).view_as(near).eq(data.labels.unsqueeze(1));
  EXPECT_GT(same.to(torch::kFloat64).mean().item<double>(), 0.99);
  // A map that only kept blobs would be poor: near neighbours in the features stay near within a blob.
  const auto close = nearest_neighbours(data.features, data.features, {.k = 6}).indices.narrow(1, 1, 5);
  const auto kept = nearest_neighbours(map, map, {.k = 16}).indices.narrow(1, 1, 15);
  const auto hits = close.unsqueeze(2).eq(kept.unsqueeze(1)).any(2).to(torch::kFloat64).mean().item<double>();
  EXPECT_GT(hits, 0.6);
}

TEST(Tsne, SameMapWhateverTheThreads) {
  const Labelled data = blobs(3, 20, 60, 3, 1);  // wider than pca_dimensions
  const int threads = torch::get_num_threads();
  torch::set_num_threads(1);
  const auto one = tsne(data.features, {.iterations = 60, .exaggerated = 30, .pca_dimensions = 0});
  torch::set_num_threads(3);
  const auto three = tsne(data.features, {.iterations = 60, .exaggerated = 30, .pca_dimensions = 0});
  torch::set_num_threads(threads);
  EXPECT_LT((one - three).abs().max().item<float>(), 1e-3 * one.abs().max().item<float>());
}

TEST(Tsne, RefusesWhatCannotWork) {
  EXPECT_THAT(error_of([] { tsne(torch::zeros({2, 3})); }), ::testing::HasSubstr("a map of 2 points"));
  EXPECT_THAT(error_of([] {
                tsne(torch::zeros({100, 3}), {.max_points = 50});
              }),
              ::testing::HasSubstr("use 50 or fewer"));
  EXPECT_THAT(error_of([] { tsne(torch::full({9, 3}, std::nan(""))); }), ::testing::HasSubstr("NaN"));
  EXPECT_TRUE(
      tsne(torch::zeros({9, 3}), {.iterations = 5}).isfinite().all().item<bool>());  // all the same point
}

}  // namespace
}  // namespace ebclr::eval
