#include "index/classify.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/files.h"
#include "core/rng.h"
#include "data/image_set.h"
#include "expect_error.h"
#include "index/tuned.h"
#include "temp_dir.h"

namespace ebclr::index {
namespace {

torch::Tensor normal(int64_t n, int64_t d, uint64_t seed) {
  auto out = torch::empty({n, d});
  core::fill_normal(seed, 0, {out.data_ptr<float>(), static_cast<size_t>(n * d)});
  return out;
}

struct Blobs {
  torch::Tensor features, truth, labels;
};

/// Three classes that overlap, the first `known` of 600 images labelled.
Blobs blobs(int64_t known, double distance) {
  const auto truth = torch::arange(600) % 3;
  const auto x = normal(3, 8, 1).index_select(0, truth) * distance + normal(600, 8, 2);
  auto labels = truth.clone();
  labels.narrow(0, known, 600 - known) = -1;
  return {x, truth, labels};
}

const std::vector<std::string> kNames = {"a", "b", "c"};

TEST(Classify, HeldOutAccuracyIsWhatTheOthersShow) {
  const auto b = blobs(150, 1.0);
  const auto r = classify(b.features, b.labels, kNames, {});
  EXPECT_EQ(r.folds, 5);
  EXPECT_EQ(r.held_out.total, 150);
  // The images without a label are the judge: the interval of the held-out labels holds their accuracy.
  const double real = r.predictions.narrow(0, 150, 450)
                          .eq(b.truth.narrow(0, 150, 450))
                          .to(torch::kFloat64)
                          .mean()
                          .item<double>();
  EXPECT_GT(real, 0.6);
  EXPECT_GT(real, r.held_out.interval.low - 0.03);
  EXPECT_LT(real, r.held_out.interval.high + 0.03);
  EXPECT_LT(calibration_error(r.probabilities.narrow(0, 150, 450), b.truth.narrow(0, 150, 450)), 0.12);
  EXPECT_TRUE(torch::allclose(r.probabilities.sum(1), torch::ones({600}), 1e-4, 1e-4));
}

TEST(Classify, TheTemperatureMendsOverconfidence) {
  // Labels drawn from softmax(logits): temperature 1 is right, five times the logits need 5.
  const auto logits = normal(4000, 3, 5) * 1.5;
  const auto p = logits.softmax(1);
  core::Rng rng(3);
  auto labels = torch::empty({4000}, torch::kInt64);
  for (int64_t i = 0; i < 4000; ++i) {
    double u = rng.uniform64();
    int64_t c = 0;
    while (c < 2 && (u -= p[i][c].item<double>()) > 0) ++c;
    labels[i] = c;
  }
  EXPECT_NEAR(fit_temperature(logits, labels), 1, 0.1);
  EXPECT_NEAR(fit_temperature(logits * 5, labels), 5, 0.5);
  EXPECT_LT(calibration_error(p, labels), 0.03);
  EXPECT_GT(calibration_error((logits * 5).softmax(1), labels), 0.1);
}

TEST(Classify, SuggestsUncertainImagesThatDiffer) {
  const auto b = blobs(60, 2.0);
  const auto r = classify(b.features, b.labels, kNames, {});
  const auto next = suggest(b.features, b.labels, r.probabilities, 20);
  ASSERT_EQ(next.size(), 20u);
  EXPECT_EQ(std::set<int64_t>(next.begin(), next.end()).size(), 20u);
  const auto p = r.probabilities;
  const auto entropy = -(p * p.clamp_min(1e-12).log()).sum(1);
  double chosen = 0;
  for (const auto i : next) {
    EXPECT_LT(b.labels[i].item<int64_t>(), 0);
    chosen += entropy[i].item<double>() / 20;
  }
  EXPECT_GT(chosen, 1.5 * entropy.narrow(0, 60, 540).mean().item<double>());
  EXPECT_TRUE(suggest(b.features, b.truth, r.probabilities, 5).empty());
}

TEST(Classify, CopiesAreHeldOutTogether) {
  // Noise with labels at random, each image four times: whoever has seen a copy knows the answer.
  const auto row = torch::arange(50).repeat_interleave(4);
  const auto labels = (normal(50, 1, 3).flatten() > 0).to(torch::kInt64).index_select(0, row);
  const auto features = normal(50, 64, 4).index_select(0, row);
  std::vector<size_t> first(200);
  for (size_t i = 0; i < first.size(); ++i) first[i] = i / 4 * 4;
  const std::vector<std::string> names = {"a", "b"};
  EXPECT_GT(classify(features, labels, names, {}).held_out.accuracy, 0.9) << "or this test tests nothing";
  const auto r = classify(features, labels, names, {.first = first});
  EXPECT_EQ(r.held_out.total, 200);
  EXPECT_LT(r.held_out.accuracy, 0.7);
  // A class of copies has one picture, which cannot both teach and ask.
  auto lone = torch::full({200}, -1, torch::kInt64);
  lone.narrow(0, 0, 8) = 0;
  lone.narrow(0, 8, 4) = 1;
  testing::expect_error(
      core::ExitCode::kUsage, [&] { classify(features, lone, names, {.first = first}); },
      "class 'b' has 4 label(s), copies aside 1");
}

TEST(Classify, TooFewLabelsAreAnError) {
  auto b = blobs(60, 1.0);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { classify(b.features, b.labels, {"a"}, {}); }, "two are the least");
  b.labels.fill_(-1);
  b.labels.narrow(0, 0, 4) = torch::tensor({0, 0, 1, 1}, torch::kInt64);
  testing::expect_error(
      core::ExitCode::kUsage, [&] { classify(b.features, b.labels, kNames, {}); }, "class 'c'");
}

TEST(Tuned, IsJudgedOnHeldOutLabelsBesideTheFrozenEncoderAndKept) {
  testing::TempDir dir;
  // Two classes that differ in brightness, and an encoder whose classifier knows nothing yet.
  data::ImageSet set;
  set.class_names = {"dark", "light"};
  set.labels = torch::arange(40) % 2;
  set.pixels = (normal(40, 3 * 16 * 16, 5) * 20 + 60 + 120 * set.labels.unsqueeze(1))
                   .clamp(0, 255)
                   .to(torch::kUInt8)
                   .view({40, 3, 16, 16});
  const auto train = data::select(set, torch::arange(0, 24)), test = data::select(set, torch::arange(24, 40));
  nn::Encoder encoder({.width = 4}, 1);
  nn::Head head({.in = encoder.feature_dim(), .out = 2, .layers = 1}, 1);
  const auto t = judge_tuned(encoder, head, &encoder, train, test, 0);
  ASSERT_TRUE(t.held_out && t.frozen);
  EXPECT_EQ(t.labels, 24);
  EXPECT_EQ(t.held_out->total, 16);
  EXPECT_EQ(t.held_out->correct,
            class_logits(encoder, head, test).argmax(1).eq(test.labels).sum().item<int64_t>());
  EXPECT_GE(t.frozen->accuracy, 0.9) << "brightness is easy to read off the features";

  run::RunFolder folder{dir / "run"};
  std::filesystem::create_directories(folder.root);
  const auto config = [&](const char* method) {
    core::write_atomically(
        folder.config(), run::to_yaml(run::resolve({{"test", {{"method.name", method}, {"head.out", "2"}}}})),
        "test");
    return run::Run::open(folder.root);
  };
  const auto error = [&](const run::Run& run) {
    try {
      read_tuned(run);
    } catch (const core::Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_NE(error(config("ebclr")).find("knows no classes"), std::string::npos);
  EXPECT_NE(error(config("supervised")).find("not trained to its end"), std::string::npos);
  write_tuned(folder, t);
  const auto back = read_tuned(config("supervised"));
  EXPECT_EQ(back.classes, t.classes);
  EXPECT_EQ(back.temperature, t.temperature);
  EXPECT_EQ(back.frozen->correct, t.frozen->correct);
  EXPECT_EQ(back.held_out->interval.high, t.held_out->interval.high);
  // Cut, of another kind, nested without end, a count beyond any integer.
  for (const std::string& text :
       {std::string(R"({"classes": 3)"), std::string(R"({"classes": 3})"),
        R"({"classes": )" + std::string(100000, '[') + std::string(100000, ']') + "}",
        std::string(R"({"classes": ["a", "b"], "labels": 1e300, "temperature": 1})")}) {
    core::write_atomically(folder.classes(), text, "test");
    EXPECT_NE(error(config("supervised")).find("damaged"), std::string::npos) << text.substr(0, 80);
  }
  // Without held-out labels nothing is claimed.
  EXPECT_FALSE(judge_tuned(encoder, head, nullptr, train, {}, 0).held_out);
}

}  // namespace
}  // namespace ebclr::index
