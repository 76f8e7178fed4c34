#pragma once
// Accuracy against what it cost, and the paper's relative efficiency between two such curves. A curve is one
// file of the run folder, whoever made it: `ebclr eval curve`, a study, or a report that reads it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ebclr::eval {

/// One judged checkpoint; epoch 0 is the untrained encoder.
struct CurvePoint {
  double epoch = 0;
  double seconds = 0;        ///< of training until then, evaluation excluded
  double forward_units = 0;  ///< forward passes of one image, backward passes converted
  double accuracy = 0;
  int64_t correct = 0, total = 0;  ///< test images; 0 where a file does not say
};

/// Curve of one run and how its points were judged.
struct Curve {
  std::string method;    ///< "ebclr", "simclr", ...
  std::string data;      ///< set that it was judged on
  std::string judge;     ///< "linear" or "knn"
  std::string protocol;  ///< "honest", "paper", ...
  int64_t train_images = 0, test_images = 0;
  std::vector<CurvePoint> points = {};
  std::string settings =
      {};  ///< of the judge in words: "K 20, 1/L2 distance"; curves of equal settings compare
  std::string schedule = {};  ///< of the training's learning rate: "constant" or "cosine"
};

/// Where a ratio lies: above `low`, at most `high`. Checkpoints are apart, so no more is known of it.
struct Bracket {
  double low = 0, high = 0;
  bool operator==(const Bracket&) const = default;
};
/// "(0.2, 0.3]", "> 1" without an upper end.
std::string to_text(const Bracket& bracket);

/// What a reference needed to reach another method's final accuracy, as a part of what that method spent in
/// all.
struct Efficiency {
  double target = 0;  ///< the other method's final accuracy
  /// Why the target says nothing about efficiency; empty: it does. The reference must begin below the target
  /// and the other must end above its own beginning, each by more than chance among the test images explains.
  std::string void_because = {};
  std::optional<CurvePoint> reached = {};  ///< first trained point of the reference at or above the target
  /// Empty where the target is void or the other spent nothing that can be divided by. A target that was
  /// never reached has no upper end (infinity).
  std::optional<Bracket> epochs = {}, seconds = {}, forward_units = {};
};

/// Relative efficiency of `other` against `reference` (EBCLR in the paper). A ratio lies between the last
/// checkpoint before the target was reached and the first that reached it. Points may come in any order;
/// untrained points (epoch 0) are what the target must exceed and never count as reaching it.
Efficiency relative_efficiency(std::vector<CurvePoint> reference, std::vector<CurvePoint> other);

/// Half-width of the 95 % interval of a difference of two accuracies, from the test images behind them; 0
/// where either does not say how many they were.
double difference_half_width(const CurvePoint& a, const CurvePoint& b);

/// Where a run keeps its curve: eval/curve_<judge>_<protocol>.json below the run folder, with "_on_<set>" for
/// a set that is not the run's own.
std::filesystem::path curve_file(const std::filesystem::path& run, const std::string& judge,
                                 const std::string& protocol, const std::string& other_set = {});
/// Writes and reads that file; reading throws Error naming what is missing or malformed.
void write_curve(const std::filesystem::path& file, const Curve& curve);
Curve read_curve(const std::filesystem::path& file);
/// The points as CSV with the 95 % interval of each.
std::string curve_csv(const Curve& curve);
/// Throws when two curves were not judged alike: other data, judge, protocol or settings, or other images.
void check_comparable(const Curve& a, const Curve& b);

}  // namespace ebclr::eval
