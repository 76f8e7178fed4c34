#pragma once
// From a study to the runs it needs. Equal configurations are one run, whichever studies ask for them.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run/config.h"
#include "study/study.h"

namespace ebclr::study {

/// One training and what it is to be judged by.
struct RunSpec {
  run::Config config;
  std::string title;                ///< "EBCLR, CIFAR-10, seed 1"
  std::filesystem::path folder;     ///< <out>/runs/<method>-<data>-<digest of the configuration>
  std::vector<std::string> judges;  ///< as in Study
  std::vector<std::string> sets;    ///< judged on these
  Judging judging;
  std::string blocked;  ///< why it cannot run ("cifar100 is not here ..."); empty: it can

  int64_t images = 0;        ///< per epoch
  double forward_units = 0;  ///< of the training
  double judging_units = 0;  ///< of the features that judging needs
};

/// Which part of a study is wanted; an axis that is not named is wanted whole.
struct Selection {
  std::map<std::string, std::vector<std::string>> only;  ///< axis, or "row" / "column", to ids
};

/// "data=fmnist,cifar10" added to a selection; throws Error for an axis that the study does not have.
void add_only(Selection& selection, const std::string& text, const Study& study);

/// One trial of a row's settings, for the report.
struct Trial {
  std::string row = {}, label = {};
  std::optional<double> accuracy = {};  ///< percent, on held-out train images
  std::string problem = {};             ///< why there is none
  bool chosen = false;
};

/// A cell of the table and the runs behind it, one for each seed.
struct PlannedCell {
  CellId id;
  std::string on;            ///< set that it is judged on
  std::vector<size_t> runs;  ///< into Plan::runs
};

/// What a study comes to at a scale.
struct Plan {
  Study study;
  std::string scale;
  int seeds = 1;
  int first_seed = 0;   ///< seeds are first_seed, first_seed + 1, ...
  bool decides = true;  ///< may runs of this scale settle a claim?
  Judging judging = {};
  std::vector<RunSpec> runs = {};
  std::vector<PlannedCell> cells = {};
  std::vector<Trial> trials = {};  ///< that the settings were chosen by
  std::string tuning_note = {};    ///< how; or why they were not tuned

  /// The cell, or null where it was left out.
  const PlannedCell* find(const CellId& id) const;
};

/// "one seed", "3 seeds", "3 seeds (3 to 5)".
std::string describe_seeds(const Plan& plan);

/// Names of data sets that are not here, with what to say of each.
using Missing = std::map<std::string, std::string>;

/// Lays out a study. `out` holds the run folders; `data_root` may be empty; seeds count from `first_seed`.
Plan make_plan(const Study& study, const std::string& scale, const Scales& scales, int seeds,
               const Selection& selection, const std::filesystem::path& out,
               const std::filesystem::path& data_root, int first_seed = 0);

/// The sets that a plan reads.
std::vector<std::string> sets_of(const Plan& plan);
/// Marks the runs that need a missing set.
void mark_missing(Plan& plan, const Missing& missing);

/// A digest of everything that decides a run's result.
std::string digest(const run::Config& config);

/// Cost per image and step in encoder forwards of one view.
double units_per_image(const run::Config& config);

}  // namespace ebclr::study
