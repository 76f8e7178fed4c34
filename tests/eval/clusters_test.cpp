#include "eval/clusters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace ebclr::eval {
namespace {

// Three directions with 10, 20 and 30 rows around them, lengths that vary.
torch::Tensor three_groups() {
  torch::manual_seed(4);
  std::vector<torch::Tensor> parts;
  for (int g = 0; g < 3; ++g) {
    auto centre = torch::zeros({8});
    centre[g] = 1;
    const int64_t n = 10 * (g + 1);
    parts.push_back((centre + 0.1 * torch::randn({n, 8})) * (1 + 5 * torch::rand({n, 1})));
  }
  return torch::cat(parts);
}

TEST(Clusters, FindsGroupsByDirectionAndPutsTheLargestFirst) {
  const auto c = cluster(three_groups(), 3, 0);
  ASSERT_EQ(c.members.size(), 3u);
  EXPECT_EQ(c.members[0].size(), 30u);
  EXPECT_EQ(c.members[1].size(), 20u);
  EXPECT_EQ(c.members[2].size(), 10u);
  for (const auto i : c.members[2]) EXPECT_LT(i, 10);
  EXPECT_EQ(c.of[59].item<int64_t>(), 0);
  EXPECT_EQ(c.of[0].item<int64_t>(), 2);
  // The first member is the nearest to its centre.
  const auto x = three_groups();
  const auto unit = x / x.norm(2, 1, true);
  const auto likeness = unit.matmul(c.centres[0]);
  EXPECT_EQ(likeness.argmax().item<int64_t>(), c.members[0][0]);
}

TEST(Clusters, SameSeedSameGroupsAndFewRowsAreFine) {
  const auto x = three_groups();
  EXPECT_TRUE(torch::equal(cluster(x, 5, 7).of, cluster(x, 5, 7).of));
  EXPECT_EQ(cluster(torch::ones({4, 3}), 3, 0).members.size(), 1u) << "rows that are all alike";
  EXPECT_EQ(cluster(torch::eye(2), 5, 0).members.size(), 2u);
}

TEST(NearestRows, LeavesTheImageItselfOut) {
  const auto x = torch::tensor({1.f, 0.f, 0.9f, 0.1f, 0.f, 1.f, 5.f, 0.1f}).view({4, 2});
  const auto near = nearest_rows(x, torch::tensor({0, 2}, torch::kInt64), 2);
  EXPECT_EQ(near[0][0].item<int64_t>(), 3) << "by direction, not by length";
  EXPECT_EQ(near[0][1].item<int64_t>(), 1);
  EXPECT_EQ(near[1][0].item<int64_t>(), 1);
  EXPECT_EQ(nearest_rows(x, torch::tensor({0}, torch::kInt64), 99).size(1), 3);
}

}  // namespace
}  // namespace ebclr::eval
