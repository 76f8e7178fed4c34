#include "index/search.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "index/outliers.h"
#include "made.h"
#include "temp_dir.h"

namespace ebclr::index {
namespace {

TEST(Search, InnerProductIsTheSumOfProducts) {
  for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 130, 512}) {
    const auto a = torch::randn({n}), b = torch::randn({n});
    EXPECT_NEAR(inner_product(a.data_ptr<float>(), b.data_ptr<float>(), static_cast<size_t>(n)),
                a.to(torch::kFloat64).dot(b.to(torch::kFloat64)).item<double>(), 1e-4)
        << n;
  }
}

TEST(Search, ExactIsASort) {
  testing::TempDir dir;
  const auto c = made(700, 24);
  write_index(dir / "a.idx", c);
  const auto index = Index::open(dir / "a.idx");
  torch::manual_seed(3);
  const auto queries = torch::randn({5, 24});
  const auto hits = search(index, queries, {.top = 9});
  const auto unit = queries / queries.norm(2, 1, true);
  const auto order = unit.to(torch::kFloat64).matmul(c.features.to(torch::kFloat64).t()).argsort(1, true);
  for (int64_t q = 0; q < 5; ++q) {
    ASSERT_EQ(hits[static_cast<size_t>(q)].size(), 9u);
    for (int64_t k = 0; k < 9; ++k)
      EXPECT_EQ(hits[static_cast<size_t>(q)][static_cast<size_t>(k)].row, order[q][k].item<int64_t>());
  }
  testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        search(index, torch::randn({1, 7}), {});
      },
      "24");
}

TEST(Search, TheGraphFindsWhatExactSearchFinds) {
  testing::TempDir dir;
  write_index(dir / "a.idx", made(3000, 32, 5, true));
  const auto index = Index::open(dir / "a.idx");
  ASSERT_FALSE(index.graph().empty());
  torch::manual_seed(4);
  const auto queries = index.features().narrow(0, 0, 100) + 0.3 * torch::randn({100, 32}) / std::sqrt(32.0);
  const auto fast = search(index, queries, {.top = 10, .effort = 200}),
             exact = search(index, queries, {.top = 10, .exact = true});
  int64_t found = 0;
  for (size_t q = 0; q < fast.size(); ++q) {
    ASSERT_EQ(fast[q].size(), 10u);
    for (size_t k = 0; k + 1 < 10; ++k) EXPECT_GE(fast[q][k].similarity, fast[q][k + 1].similarity);
    for (const auto& h : fast[q])
      found += std::any_of(exact[q].begin(), exact[q].end(), [&](const Hit& e) { return e.row == h.row; });
  }
  EXPECT_GE(found, 990) << "recall@10 below 0.99";
}

TEST(Search, SimilaritiesAreCosines) {
  testing::TempDir dir;
  for (const bool graph : {false, true}) {
    auto c = made(300, 16, 1, graph);
    c.features *= 1.0001;  // what rounding does now and then
    write_index(dir / "a.idx", c);
    const auto index = Index::open(dir / "a.idx");
    for (const float sign : {1.F, -1.F}) {
      const auto hits = search(index, sign * c.features.narrow(0, 7, 1), {.top = 300}).front();
      ASSERT_FALSE(hits.empty());
      for (const auto& h : hits) {
        EXPECT_LE(h.similarity, 1.F);
        EXPECT_GE(h.similarity, -1.F);
      }
    }
  }
}

TEST(Search, OneQueryOfSeveralTurnsAwayFromTheUnwanted) {
  const auto a = torch::tensor({{1.0f, 0.0f, 0.0f}}), b = torch::tensor({{0.0f, 1.0f, 0.0f}});
  EXPECT_TRUE(torch::allclose(combine(a, {}), a));
  const auto both = combine(torch::cat({a, b}), {});
  EXPECT_NEAR(both[0][0].item<float>(), both[0][1].item<float>(), 1e-6);
  EXPECT_LT(combine(a, b)[0][1].item<float>(), 0);
  EXPECT_GT(combine(a, b)[0][0].item<float>(), 0.8);
}

TEST(Outliers, AStrangerComesFirst) {
  testing::TempDir dir;
  auto c = made(200, 16);
  auto centre = c.features.mean(0);
  // All in one cluster but number 77; by energy number 199 (energies are the row numbers).
  c.features = 0.2 * c.features + centre / centre.norm();
  c.features[77] = -centre;
  c.features = (c.features / c.features.norm(2, 1, true)).contiguous();
  write_index(dir / "a.idx", c);
  const auto index = Index::open(dir / "a.idx");
  for (const auto* by : {"neighbours", "mahalanobis"})
    EXPECT_EQ(strangest(outlier_scores(index, {.by = by}))[0].item<int64_t>(), 77) << by;
  EXPECT_EQ(strangest(outlier_scores(index, {.by = "energy"}))[0].item<int64_t>(), 199);
  EXPECT_EQ(strangest(outlier_scores(index, {.by = "combined"}))[0].item<int64_t>(), 77);
  EXPECT_TRUE(torch::equal(outlier_scores(index, {}), outlier_scores(index, {.by = "combined"})));
  EXPECT_EQ(choose_score(40, 128, true), "energy");
  EXPECT_EQ(choose_score(40, 128, false), "neighbours");
  EXPECT_EQ(choose_score(4000, 128, false), "combined");
  testing::expect_error(
      core::ExitCode::kUsage, [&] { outlier_scores(index, {.by = "mood"}); }, "choose energy");
  c.info.has_energies = false;
  write_index(dir / "b.idx", c);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { outlier_scores(Index::open(dir / "b.idx"), {.by = "energy"}); },
      "no energies", "--by combined", "ebclr index /runs/x --data /photos --out ");
  EXPECT_EQ(strangest(outlier_scores(Index::open(dir / "b.idx"), {.by = "combined"}))[0].item<int64_t>(), 77);
}

TEST(Outliers, FeaturesOfAnotherLengthAreStrangeThoughTheirDirectionIsNot) {
  auto features = made(200, 16).features;
  const auto spread = torch::linspace(0.9, 1.1, 200, torch::kFloat64);
  for (const double length : {0.2, 5.0}) {
    auto lengths = spread.clone();
    lengths[33] = length;
    const auto scores = outlier_scores(Looks{features, lengths, {}}, {.by = "combined"}, "test");
    EXPECT_EQ(strangest(scores)[0].item<int64_t>(), 33) << length;
    EXPECT_NE(strangest(outlier_scores(Looks{features, lengths, {}}, {.by = "mahalanobis"}, "test"))[0]
                  .item<int64_t>(),
              33);
  }
}

}  // namespace
}  // namespace ebclr::index
