#include "data/image_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "data/catalog.h"
#include "data/shapes.h"

namespace ebclr::data {
namespace {

// Images whose only pixel is their index; labels[i] given.
ImageSet numbered(const std::vector<int64_t>& labels, int64_t classes) {
  ImageSet s;
  s.name = "numbered";
  const auto n = static_cast<int64_t>(labels.size());
  s.pixels = torch::arange(n).to(torch::kUInt8).reshape({n, 1, 1, 1});
  s.labels = torch::tensor(labels, torch::kInt64);
  for (int64_t c = 0; c < classes; ++c) s.class_names.push_back(std::to_string(c));
  return s;
}

std::vector<int64_t> counts(const torch::Tensor& labels, int64_t classes) {
  std::vector<int64_t> out;
  for (int64_t c = 0; c < classes; ++c) out.push_back((labels == c).sum().item<int64_t>());
  return out;
}

std::set<int64_t> ids(const ImageSet& s) {
  const auto v = s.pixels.flatten().to(torch::kInt64);
  return {v.data_ptr<int64_t>(), v.data_ptr<int64_t>() + v.numel()};
}

TEST(Limit, IsBalancedNestedSeededAndKeepsTheOrder) {
  std::vector<int64_t> labels;
  for (int i = 0; i < 100; ++i) labels.push_back(i < 70 ? 0 : (i < 95 ? 1 : 2));
  const auto set = numbered(labels, 3);
  const auto ten = limit(set, 12, 5), more = limit(set, 30, 5);
  EXPECT_EQ(counts(ten.labels, 3), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(more.size(), 30);
  EXPECT_EQ(counts(more.labels, 3)[2], 5);  // all there are; the others share the rest
  EXPECT_LE(std::abs(counts(more.labels, 3)[0] - counts(more.labels, 3)[1]), 1);
  const auto a = ids(ten), b = ids(more);
  EXPECT_TRUE(std::includes(b.begin(), b.end(), a.begin(), a.end()));
  const auto order = ten.pixels.flatten().to(torch::kInt64);
  EXPECT_TRUE((order.slice(0, 1) > order.slice(0, 0, -1)).all().item<bool>());
  EXPECT_EQ(ids(limit(set, 12, 5)), a);
  EXPECT_NE(ids(limit(set, 12, 6)), a);
  EXPECT_EQ(limit(set, 0, 5).size(), 100);
  EXPECT_EQ(limit(set, 1000, 5).size(), 100);
  EXPECT_THROW(limit(set, -1, 5), core::Error);
}

TEST(Limit, KeepsTheShareOfUnlabelledImages) {
  std::vector<int64_t> labels(100, kNoLabel);
  for (int i = 0; i < 40; ++i) labels[i] = i % 2;
  const auto part = limit(numbered(labels, 2), 10, 0);
  EXPECT_EQ((part.labels == kNoLabel).sum().item<int64_t>(), 6);
  EXPECT_EQ(counts(part.labels, 2), (std::vector<int64_t>{2, 2}));
  EXPECT_FALSE(part.labelled());
  EXPECT_EQ(limit(numbered(std::vector<int64_t>(50, kNoLabel), 0), 7, 0).size(), 7);
}

TEST(HoldOut, IsStratifiedDisjointAndComplete) {
  std::vector<int64_t> labels;
  for (int i = 0; i < 200; ++i) labels.push_back(i % 10 == 0 ? 1 : 0);
  const auto set = numbered(labels, 2);
  const auto [rest, held] = hold_out(set, 0.25, 3);
  EXPECT_EQ(rest.numel(), 150);
  EXPECT_EQ(held.numel(), 50);
  EXPECT_EQ(counts(set.labels.index_select(0, held), 2), (std::vector<int64_t>{45, 5}));
  std::set<int64_t> all;
  for (const auto& t : {rest, held}) {
    all.insert(t.data_ptr<int64_t>(), t.data_ptr<int64_t>() + t.numel());
    EXPECT_TRUE((t.slice(0, 1) > t.slice(0, 0, -1)).all().item<bool>());
  }
  EXPECT_EQ(all.size(), 200u);
  EXPECT_TRUE(torch::equal(hold_out(set, 0.25, 3).second, held));
  EXPECT_FALSE(torch::equal(hold_out(set, 0.25, 4).second, held));
  EXPECT_EQ(hold_out(set, 0, 3).second.numel(), 0);
  EXPECT_THROW(hold_out(set, 1.0, 3), core::Error);
  EXPECT_THROW(hold_out(set, std::nan(""), 3), core::Error);
}

/// Numbers of the first of each group of copies: `groups` has the size of each, one after the other.
std::vector<size_t> copies(const std::vector<size_t>& groups) {
  std::vector<size_t> first;
  for (const size_t n : groups) first.insert(first.end(), n, first.size());
  return first;
}

TEST(HoldOut, CopiesDoNotChangeTheShareWhereOthersFit) {
  // Fifteen pictures twice in one class, three pictures ten times in another: 6 of 60 are three pairs.
  std::vector<size_t> groups(15, 2);
  groups.insert(groups.end(), 3, 10);
  const auto labels = torch::cat({torch::zeros({30}, torch::kInt64), torch::ones({30}, torch::kInt64)});
  for (const uint64_t seed : {0, 1, 2}) {
    const auto held = hold_out(labels, copies(groups), 0.1, seed).second;
    EXPECT_EQ(held.numel(), 6) << seed;
    EXPECT_LT(held.max().item<int64_t>(), 30);
  }
}

TEST(HoldOut, WhereEveryPictureHasMoreCopiesThanAreWantedOneIsHeldOut) {
  const auto labels = torch::zeros({24}, torch::kInt64);
  const auto [rest, held] = hold_out(labels, copies({5, 4, 5, 5, 5}), 0.1, 3);
  EXPECT_EQ(held.numel(), 4);
  EXPECT_EQ(held[0].item<int64_t>(), 5) << "that with fewest copies";
  EXPECT_EQ(rest.numel(), 20);
  EXPECT_EQ(hold_out(labels, copies({24}), 0.1, 3).second.numel(), 0) << "one picture: nothing would be left";
}

TEST(Select, KeepsFilesAndCoarseLabelsTogether) {
  auto set = numbered({0, 1, 0, 1}, 2);
  set.coarse_labels = torch::tensor({5, 6, 7, 8}, torch::kInt64);
  set.files = {"a", "b", "c", "d"};
  const auto part = select(set, torch::tensor({3, 0}, torch::kInt64));
  EXPECT_EQ(part.files, (std::vector<std::string>{"d", "a"}));
  EXPECT_EQ(part.coarse_labels[0].item<int64_t>(), 8);
  EXPECT_EQ(part.pixels[0].item<int64_t>(), 3);
  EXPECT_THROW(select(set, torch::tensor({4}, torch::kInt64)), core::Error);
}

TEST(UnitRange, MapsBytesAndLeavesItsArgument) {
  const auto bytes = torch::tensor({0, 255}, torch::kUInt8);
  const auto f = to_unit_range(bytes);
  EXPECT_NEAR(f[0].item<float>(), -1, 1e-6);
  EXPECT_NEAR(f[1].item<float>(), 1, 1e-6);
  const auto floats = torch::tensor({0.0f, 255.0f});
  to_unit_range(floats);
  EXPECT_EQ(floats[1].item<float>(), 255.0f);
}

TEST(Shapes, DoNotDependOnThreadsOrCount) {
  const auto a = make_shapes({.count = 300, .seed = 2, .threads = 1}, "train");
  const auto b = make_shapes({.count = 137, .seed = 2, .threads = 3}, "train");
  EXPECT_TRUE(torch::equal(a.pixels.slice(0, 0, 137), b.pixels));
  EXPECT_TRUE(torch::equal(a.labels.slice(0, 0, 137), b.labels));
  EXPECT_EQ(counts(a.labels, 10), std::vector<int64_t>(10, 30));
  EXPECT_FALSE(torch::equal(make_shapes({.count = 137, .seed = 3}, "train").pixels, b.pixels));
  EXPECT_FALSE(torch::equal(make_shapes({.count = 137, .seed = 2}, "test").pixels, b.pixels));
  EXPECT_TRUE(a.labelled());
  EXPECT_EQ(a.classes(), 10);
}

TEST(Shapes, ComeInTheAskedSizes) {
  const auto load_name = [](const std::string& name) {
    return load({.source = name, .limit = 20, .limit_test = 10}).train.pixels.sizes().vec();
  };
  EXPECT_EQ(load_name("shapes"), (std::vector<int64_t>{20, 3, 32, 32}));
  EXPECT_EQ(load_name("shapes28"), (std::vector<int64_t>{20, 3, 28, 28}));
  EXPECT_EQ(load_name("shapes-gray"), (std::vector<int64_t>{20, 1, 32, 32}));
  EXPECT_EQ(load_name("shapes28-gray"), (std::vector<int64_t>{20, 1, 28, 28}));
}

// Accuracy of the nearest of the train images in pixel space.
double pixel_neighbour_accuracy(const TrainTest& d) {
  const auto flat = [](const ImageSet& s) { return to_unit_range(s.pixels).flatten(1); };
  const auto nearest = torch::cdist(flat(d.test), flat(d.train)).argmin(1);
  return (d.train.labels.index_select(0, nearest) == d.test.labels).to(torch::kFloat64).mean().item<double>();
}

TEST(Shapes, AreHardForNeighboursInPixelSpace) {
  const double accuracy =
      pixel_neighbour_accuracy(load({.source = "shapes", .limit = 2000, .limit_test = 400}));
  RecordProperty("accuracy", std::to_string(accuracy));
  EXPECT_LT(accuracy, 0.35);
}

}  // namespace
}  // namespace ebclr::data
