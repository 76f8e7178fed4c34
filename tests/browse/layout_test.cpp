#include "browse/layout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "../index/made.h"
#include "temp_dir.h"

namespace ebclr::browse {
namespace {

TEST(Layout, EveryImageHasACellOfItsOwnNearWhereItBelongs) {
  torch::manual_seed(1);
  auto points = torch::rand({500, 2});
  points.narrow(0, 0, 200) = 0.5;  // many want the same cell
  const auto placed = spread_over_grid(points);
  std::set<std::pair<float, float>> cells;
  for (int64_t i = 0; i < 500; ++i) cells.emplace(placed[i][0].item<float>(), placed[i][1].item<float>());
  EXPECT_EQ(cells.size(), 500u);
  EXPECT_GE(placed.min().item<float>(), 0);
  EXPECT_LE(placed.max().item<float>(), 1);
  EXPECT_LT((placed - points).norm(2, 1).narrow(0, 200, 300).median().item<float>(), 0.15);
  EXPECT_LT((placed - points).norm(2, 1).max().item<float>(), 0.6);
}

TEST(Layout, NeighboursOnTheMapShareASheet) {
  torch::manual_seed(2);
  const int64_t n = 64 * 256;
  const auto places = torch::rand({n, 2});
  const auto rows = along_map(places);
  ASSERT_EQ(rows.size(), static_cast<size_t>(n));
  EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), rows.size());
  std::vector<int64_t> slot(rows.size());
  for (size_t k = 0; k < rows.size(); ++k) slot[static_cast<size_t>(rows[k])] = static_cast<int64_t>(k);
  // A quarter of either side: a sixteenth of all images, four sheets if they lay just so.
  const auto* xy = places.data_ptr<float>();
  for (const auto& [left, top] : {std::pair{0.0f, 0.0f}, std::pair{0.3f, 0.6f}, std::pair{0.41f, 0.37f}}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < n; ++i)
      if (xy[2 * i] >= left && xy[2 * i] < left + 0.25f && xy[2 * i + 1] >= top &&
          xy[2 * i + 1] < top + 0.25f)
        seen.insert(slot[static_cast<size_t>(i)] / 256);
    EXPECT_LE(seen.size(), 24u) << "of 64";
  }
}

TEST(Layout, SimilarImagesLieTogether) {
  testing::TempDir dir;
  auto c = index::made(400, 16);
  // Four tight clusters.
  for (int64_t i = 0; i < 400; ++i) c.features[i] = 0.02 * c.features[i] + torch::eye(16)[i % 4];
  c.features = (c.features / c.features.norm(2, 1, true)).contiguous();
  index::write_index(dir / "a.idx", c);
  const auto index = index::Index::open(dir / "a.idx");
  for (const int64_t landmarks : {400, 120}) {
    const auto p = layout(index, {.landmarks = landmarks});
    ASSERT_EQ(p.size(0), 400);
    double inside = 0, between = 0;
    for (int64_t k = 0; k < 4; ++k) {
      const auto mine = p.index({torch::indexing::Slice(k, torch::indexing::None, 4)});
      inside += (mine - mine.mean(0)).norm(2, 1).mean().item<double>() / 4;
      between += (mine.mean(0) - p.mean(0)).norm().item<double>() / 4;
    }
    EXPECT_LT(inside, 0.75 * between) << landmarks;
  }
}

TEST(Layout, AFewImagesAreFine) {
  testing::TempDir dir;
  for (const int64_t n : {1, 2, 9}) {
    index::write_index(dir / "a.idx", index::made(n, 8));
    EXPECT_EQ(layout(index::Index::open(dir / "a.idx")).size(0), n);
  }
}

}  // namespace
}  // namespace ebclr::browse
