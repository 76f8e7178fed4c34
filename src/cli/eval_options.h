#pragma once
// Options that several commands about a trained encoder share.

#include <string>
#include <vector>

#include "cli/runtime.h"
#include "data/catalog.h"
#include "eval/judge.h"
#include "run/run.h"

namespace ebclr::cli {

/// Which run, which checkpoint, which images.
struct EncoderOptions {
  std::string run, data, checkpoint = "last", data_root;
  int64_t image_size = 0, limit = -1, limit_test = -1;
  double test_fraction = -1;
  std::string labels_csv;
  bool grayscale = false, json = false;
  RuntimeOptions runtime_options;
  Runtime runtime;  ///< set by open()

  void add(CLI::App& command, bool with_data = true);
  /// The images that are meant: the run's own, or another set.
  data::SourceOptions source(const run::Run& run) const;
  /// Makes the machine ready and opens the run.
  run::Run open();
  /// The asked checkpoint on its device.
  run::Model load(const run::Run& run) const;
};

/// How to judge.
struct JudgingOptions {
  std::string linear_protocol = "honest", plots;
  std::vector<std::string> knn_protocols = {"paper"};
  std::vector<std::string> baselines;
  std::vector<int64_t> labels_per_class;
  int64_t k = 0, epochs = 200, batch = 512;
  int draws = 5, rates = 10;
  uint64_t seed = 0;
  bool standardise = false;

  void add_common(CLI::App& command);
  void add_linear(CLI::App& command, const std::string& protocol_name);
  void add_knn(CLI::App& command, const std::string& protocol_name);
  eval::JudgeOptions options(bool linear, bool knn) const;
};

}  // namespace ebclr::cli
