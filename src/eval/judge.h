#pragma once
// Rows of an evaluation table: a subject (trained encoder, untrained one, raw pixels) and what each judge
// says of it.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "eval/features.h"
#include "eval/knn.h"
#include "eval/linear.h"
#include "run/run.h"

namespace ebclr::eval {

/// Features of one subject on both splits.
struct Subject {
  std::string name;    ///< "trained encoder", "untrained encoder", "raw pixels"
  int64_t epoch = -1;  ///< of the checkpoint, -1 where there is none
  Labelled train, test;
};

/// Which judges and how.
struct JudgeOptions {
  bool linear = true;
  ProbeOptions probe = {};
  std::vector<KnnOptions> neighbours = {KnnOptions{}};  ///< one row for each; empty: no neighbours
  bool lower_k = false;  ///< to the number of train images, where there are fewer; else that is an error
  std::vector<int64_t> labels_per_class = {};  ///< also probes with few labels when not empty
  int draws = 5;                               ///< of labels for each of them
};

/// One line of the table.
struct Row {
  std::string subject;
  int64_t epoch = -1;
  std::string judge;     ///< "linear" or "knn"
  std::string protocol;  ///< "honest", "paper", "dino", "moco"
  std::string label;     ///< what the protocol did, in words
  int64_t dimensions = 0, train_images = 0;
  Score score;
  std::vector<double> rates, grid_accuracy;  ///< linear only
  double rate = 0;                           ///< chosen learning rate, linear only
  int64_t k = 0;                             ///< knn only
  std::vector<LabelEfficiency> few_labels;   ///< linear only, when asked for
};

/// What is going on, for a progress line: what, and the share of it that is done.
using Progress = std::function<void(const std::string&, double)>;

/// Puts one subject before the judges.
std::vector<Row> judge(const Subject& subject, int64_t classes, const JudgeOptions& options,
                       const Progress& progress = {});

/// Both splits as an encoder reads them, checked to be fit for judging.
struct EvalSets {
  data::TrainTest raw;      ///< as loaded
  data::TrainTest adapted;  ///< as the encoder reads them
  int64_t classes = 0;
  std::vector<std::string> class_names;
  std::vector<std::string> notes;
};

/// Keeps the labelled images; throws when the sets cannot be judged on: a split is missing or has no labels.
EvalSets make_eval_sets(data::TrainTest sets, int64_t channels, const std::vector<int64_t>& trained_shape,
                        bool grayscale);

/// Features of an encoder on both splits; with several ranks rank 0 has them.
Subject encoder_subject(const std::string& name, run::Model& model, const EvalSets& sets,
                        const Progress& progress = {},
                        const std::shared_ptr<dist::Group>& ranks = dist::solo());
/// Raw pixels of both splits.
Subject pixel_subject(const EvalSets& sets);

/// All that is known of a row, class names included.
nlohmann::json to_json(const Row& row, const std::vector<std::string>& class_names);

}  // namespace ebclr::eval
