#pragma once
// The curve of a run: its untrained encoder and every kept checkpoint before the judges.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "engine/engine.h"
#include "eval/curve.h"
#include "eval/judge.h"
#include "run/run.h"

namespace ebclr::eval {

/// Which checkpoints are judged.
enum class CurvePoints {
  kAll,   ///< every readable one of its lineage that says how many epochs it has seen
  kKept,  ///< whole epochs that training keeps for good, and the last: the same for equal configurations
};

struct CurveOptions {
  data::SourceOptions data;  ///< set to judge on
  JudgeOptions judging;      ///< one curve for each judge and protocol of it
  CurvePoints points = CurvePoints::kAll;
  bool grayscale = false;  ///< convert colour images for a grey encoder
  engine::Placement placement = {};
  Progress progress = {};  ///< may throw to end the work
  /// Called before each point with its number, and how many there will be; may throw too.
  std::function<void(size_t point, size_t points)> on_point = {};
};

/// Curves of a run and the rows behind their points.
struct RunCurves {
  std::vector<Curve> curves;
  std::vector<std::vector<Row>> rows;  ///< by curve, then by point
  std::vector<std::string> notes;      ///< what was done to the images
};

/// Judges a run from end to end; throws Error when it has no checkpoint. Writes nothing.
RunCurves curve_of_run(const run::Run& run, const CurveOptions& options);

/// Steps of an epoch of a run, from any checkpoint beyond its first epoch; 0: there is none.
int64_t steps_of_epoch(const std::vector<run::CheckpointInfo>& checkpoints);
/// Epochs of a position, with a part for the batches of one that is not over, of so many steps; 0 inside a
/// first epoch where these are not known.
double epochs_of(const run::Position& position, int64_t per_epoch);

/// How far the weights of a checkpoint have come.
struct Reached {
  double epochs = 0;  ///< 0 inside a first epoch whose length is not known
  int64_t step = 0;
};
/// Of a run's newest readable checkpoint; nothing where there is none.
std::optional<Reached> reached(const run::Run& run);

/// How a judge is set, in words that are equal when and only when its figures can be compared.
std::string settings_of(const CurveOptions& options, const std::string& judge, const std::string& protocol);

/// Writes a curve to its file in the run folder (see curve_file) and the same as CSV beside it; returns the
/// JSON file.
std::filesystem::path keep_curve(const run::Run& run, const Curve& curve);

}  // namespace ebclr::eval
