#include "eval/strangers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "data/shapes.h"
#include "golden.h"
#include "temp_dir.h"

namespace ebclr::eval {
namespace {

const Strangers& find(const std::vector<Strangers>& list, const std::string& name) {
  for (const auto& s : list)
    if (s.name == name) return s;
  throw std::runtime_error("no strangers called " + name);
}

TEST(Strangers, AreShapedLikeTheOwnImagesAndWhatTheyAreCalled) {
  const testing::TempDir nothing_here;
  for (const bool gray : {false, true}) {
    const auto own = data::make_shapes({.size = 28, .gray = gray, .count = 40, .seed = 5}, "test");
    const auto list = make_strangers(own, {.count = 40, .data_root = nothing_here.path()});
    EXPECT_EQ(list.size(), 4u) << "sets that are not on the disk are left out";
    for (const auto& s : list) {
      EXPECT_EQ(s.set.pixels.sizes(), own.pixels.sizes()) << s.name;
      EXPECT_FALSE(torch::equal(s.set.pixels, own.pixels)) << s.name;
    }
    const auto noise = find(list, "noise").set.pixels.to(torch::kFloat32);
    EXPECT_NEAR(noise.mean().item<double>(), 127.5, 1.5);
    EXPECT_NEAR(noise.std().item<double>(), 73.9, 1.5);
    // Shuffling moves pixels about; blurring takes away differences of neighbours.
    const auto sorted = [](const torch::Tensor& t) { return std::get<0>(t.flatten(1).sort(1)); };
    EXPECT_TRUE(torch::equal(sorted(find(list, "shuffled").set.pixels), sorted(own.pixels)));
    const auto rough = [](const torch::Tensor& t) {
      return t.to(torch::kFloat32).diff(1, 3).abs().mean().item<double>();
    };
    EXPECT_LT(rough(find(list, "blurred").set.pixels), 0.6 * rough(own.pixels));
  }
}

TEST(Strangers, SetsOnTheDiskAreStrangersButThoseWithTheOwnImages) {
  const testing::TempDir root;
  std::filesystem::create_directory(root / "cifar100");
  for (const char* file : {"train.bin", "test.bin"}) {
    std::ofstream out(root / "cifar100" / file, std::ios::binary);
    for (int i = 0; i < 20; ++i)
      out << std::string(2, '\0') << std::string(3 * 32 * 32, static_cast<char>(i));
  }
  auto own = data::make_shapes({.size = 28, .gray = true, .count = 20, .seed = 5}, "test");
  const auto names = [&](const std::string& name) {
    own.name = name;
    std::vector<std::string> out;
    for (const auto& s : make_strangers(own, {.count = 20, .data_root = root.path()})) out.push_back(s.name);
    return out;
  };
  const std::vector<std::string> made = {"shapes", "noise", "blurred", "shuffled"};
  auto all = made;
  all.push_back("cifar100");  // once: with the coarse classes it is the same photos
  EXPECT_EQ(names("photos"), all);
  EXPECT_EQ(names("cifar100"), made);
  EXPECT_EQ(names("cifar100-coarse"), made);
}

TEST(Strangers, OwnImagesAreNoStrangersAndTheMeanIsOverTheSets) {
  const testing::TempDir nothing_here;
  density::Density density;
  density.model.encoder =
      std::make_shared<nn::Encoder>(nn::EncoderOptions{.width = 8, .init = nn::Init::kResidual}, 1);
  density.model.head = std::make_shared<nn::Head>(nn::HeadOptions{.in = 64, .hidden = 32, .out = 16}, 1);
  density.model.encoder->eval();
  density.model.head->eval();
  density.images = std::make_shared<const data::ImageSet>(
      data::make_shapes({.size = 16, .count = 200, .seed = 1}, "train"));
  {
    torch::NoGradGuard guard;
    density.references = density.model.head->forward(
        density.model.encoder->forward(data::to_unit_range(density.images->pixels)));
  }
  const auto own = data::make_shapes({.size = 16, .count = 100, .seed = 1}, "test");
  auto strangers = make_strangers(own, {.count = 100, .data_root = nothing_here.path()});
  strangers.push_back({"own", own});
  const auto rows = judge_strangers(score_strangers(density, own, strangers));
  ASSERT_EQ(rows.size(), strangers.size() + 1);
  EXPECT_EQ(rows.back().name, "mean");
  StrangerRow sum;
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    for (const double value : {rows[i].energy, rows[i].neighbour, rows[i].mahalanobis, rows[i].combined}) {
      EXPECT_GE(value, 0) << rows[i].name;
      EXPECT_LE(value, 1) << rows[i].name;
      if (rows[i].name == "own") {
        EXPECT_EQ(value, 0.5);
      }
    }
    sum.energy += rows[i].energy;
    sum.combined += rows[i].combined;
  }
  EXPECT_NEAR(rows.back().energy, sum.energy / static_cast<double>(strangers.size()), 1e-12);
  EXPECT_NEAR(rows.back().combined, sum.combined / static_cast<double>(strangers.size()), 1e-12);
}

}  // namespace
}  // namespace ebclr::eval
