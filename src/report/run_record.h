#pragma once
// What a run folder tells: configuration, metrics, summary, judgements, pictures of chains. Parts that are
// missing or damaged are noted, not fatal.

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/curve.h"
#include "eval/run_curve.h"
#include "run/metrics.h"
#include "run/provenance.h"
#include "run/run.h"

namespace ebclr::report {

/// An accuracy that lies in the folder already.
struct Judgement {
  std::string judge, protocol, data;
  double accuracy = 0;
  std::string source;                                ///< file that says so
  double epoch = NAN;                                ///< of the weights; NaN: the file does not say
  int64_t step = 0;                                  ///< the same, exactly; 0: the file does not say
  std::vector<std::string> names = {};               ///< of classes, with `confusion`
  std::vector<std::vector<int64_t>> confusion = {};  ///< empty when the file has none
};

/// A picture of the chains after an epoch.
struct ChainPicture {
  int64_t epoch = 0;
  std::filesystem::path file;
};

/// How far a run got.
enum class RunState { kFinished, kUnfinished, kGaveUp, kEmpty };

/// One run folder as read.
struct RunRecord {
  std::string name;  ///< short, unique among the runs of a page
  run::Run run;
  RunState state = RunState::kEmpty;
  /// Of its newest checkpoint; without one of its metrics.
  eval::Reached newest;
  run::Metrics metrics;
  nlohmann::json summary;              ///< null when there is none
  std::vector<run::Session> sessions;  ///< what trained it
  std::vector<eval::Curve> curves;
  std::vector<Judgement> judgements;
  std::vector<ChainPicture> chains;
  std::vector<std::string> log;    ///< first lines of train.log without their time
  std::vector<std::string> notes;  ///< what is missing or damaged
};

/// Adds what a JSON file below eval/ says, a curve or what `ebclr eval ... --json` prints; `shown` names it.
void add_judgement(const std::string& text, const std::string& shown, RunRecord& out);
/// "epoch 2 of 6" for weights that training has left behind; "" for the newest ones and where nothing says
/// which they are.
std::string older_weights(const RunRecord& run, double epoch, int64_t step = 0);
/// Reads one; throws Error only when the folder is no run.
RunRecord read_record(const std::filesystem::path& folder);
/// Reads several and gives each a short name of its own.
std::vector<RunRecord> read_records(const std::vector<std::filesystem::path>& folders);
/// Short names for folders: the last component, with as many before it as tell them apart.
std::vector<std::string> short_names(const std::vector<std::filesystem::path>& folders);

}  // namespace ebclr::report
