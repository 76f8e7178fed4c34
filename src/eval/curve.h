#pragma once
// Accuracy against what it cost, and the paper's relative efficiency between two such curves.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebclr::eval {

/// One evaluated checkpoint.
struct CurvePoint {
  double epoch = 0;
  double seconds = 0;        ///< of training until then, evaluation excluded
  double forward_units = 0;  ///< forward passes of one image, backward passes converted
  double accuracy = 0;
};

/// What a reference needed to reach another method's final accuracy, as a part of what that method spent in
/// all. Empty where the reference never got there, or where the other spent nothing that can be divided by.
struct Efficiency {
  double target = 0;                  ///< the other method's final accuracy
  std::optional<CurvePoint> reached;  ///< first point of the reference at or above it
  std::optional<double> epochs, seconds, forward_units;
};

/// Relative efficiency of `other` against `reference` (EBCLR in the paper). As there, a reference counts from
/// the first kept checkpoint that reaches the target: nothing is interpolated. Points may come in any order.
Efficiency relative_efficiency(std::vector<CurvePoint> reference, std::vector<CurvePoint> other);

/// The curve of one run and how its points were judged.
struct Curve {
  std::string method;    ///< "ebclr", "simclr", ...
  std::string data;      ///< set that it was judged on
  std::string judge;     ///< "linear" or "knn"
  std::string protocol;  ///< "honest", "paper", ...
  int64_t train_images = 0, test_images = 0;
  std::vector<CurvePoint> points;
};

/// Where a run keeps its curve: eval/curve_<judge>_<protocol>.json below the run folder.
std::filesystem::path curve_file(const std::filesystem::path& run, const std::string& judge,
                                 const std::string& protocol);
/// Writes and reads that file; reading throws Error naming what is missing or malformed.
void write_curve(const std::filesystem::path& file, const Curve& curve);
Curve read_curve(const std::filesystem::path& file);
/// Throws when two curves were not judged alike: other data, judge or protocol, or other images.
void check_comparable(const Curve& a, const Curve& b);

}  // namespace ebclr::eval
