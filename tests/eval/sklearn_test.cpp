// Optional: needs a python3 with scikit-learn (Debian: python3-sklearn) and is skipped without.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/npy.h"
#include "eval/knn.h"
#include "eval/linear.h"
#include "helpers.h"
#include "temp_dir.h"

namespace ebclr::eval {
namespace {

TEST(Sklearn, AgreesOnExportedFeatures) {
  testing::TempDir dir;
  // Overlapping classes (about 80 % can be told apart), so that agreement is not trivial.
  const Labelled train = blobs(6, 500, 20, 0.45, 1), test = blobs(6, 400, 20, 0.45, 2);
  core::write_npy(dir / "train.npy", train.features);
  core::write_npy(dir / "train.labels.npy", train.labels);
  core::write_npy(dir / "test.npy", test.features);
  core::write_npy(dir / "test.labels.npy", test.labels);

  // The first python3 of the path may be another than Debian's.
  std::string text;
  int status = 77;
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const std::string command =
        std::string(python) + " " EBCLR_SKLEARN_SCRIPT " " + dir.path().string() + " 2>/dev/null";
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    text.clear();
    std::array<char, 256> line{};
    while (fgets(line.data(), line.size(), pipe)) text += line.data();
    status = WEXITSTATUS(pclose(pipe));
    if (status == 0) break;
  }
  if (status == 77 || status == 127) {
    GTEST_SKIP() << "no python3 with scikit-learn here (Debian: apt-get install python3-sklearn): " << text;
  }
  ASSERT_EQ(status, 0) << text;
  const auto theirs = nlohmann::json::parse(text);

  const double knn = knn_score(train, test, 6, knn_protocol("paper")).accuracy;
  EXPECT_NEAR(knn, theirs["knn"].get<double>(), 0.005);
  // The protocol's own 200 epochs: with 60 slow rates are not converged, and 3 of 12 other draws of these
  // blobs missed the half point (12 of 12 keep it with 200).
  const double linear = linear_probe(train, test, 6, {}).test.accuracy;
  EXPECT_NEAR(linear, theirs["linear"].get<double>(), 0.005);
  EXPECT_GT(linear, 0.6);
  EXPECT_LT(linear, 0.98);
}

}  // namespace
}  // namespace ebclr::eval
