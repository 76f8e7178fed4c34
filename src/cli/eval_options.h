#pragma once
// Options that several commands about a trained encoder share.

#include <string>
#include <vector>

#include "cli/data_options.h"
#include "cli/runtime.h"
#include "data/catalog.h"
#include "dist/group.h"
#include "eval/judge.h"
#include "run/run.h"

namespace ebclr::cli {

/// The images of that name for a run: its own wherever its folder was moved to, with the limits and labels
/// that it knows, or another set. "": its own.
data::SourceOptions set_for(const run::Run& run, const std::string& name);

/// Which run, which checkpoint, which images.
struct EncoderOptions : DataOptions {
  std::string run, checkpoint = "last";
  bool json = false;
  RuntimeOptions runtime_options;
  Runtime runtime;  ///< set by open()

  void add(CLI::App& command, bool with_data = true);
  /// The images that are meant: the run's own, or another set.
  data::SourceOptions source(const run::Run& run) const;
  /// "all" for folders, `named` for sets with a name, unless `asked` says something.
  std::string split_or(const run::Run& run, const std::string& asked, const std::string& named) const;
  /// Those images, with the split that the run was trained with; `rest` also what is in neither split. Who
  /// does not need the run's `labels` gets the images without where they are gone.
  data::TrainTest images(const run::Run& run, bool rest = false, bool labels = true) const;
  /// Makes the machine ready and opens the run.
  run::Run open();
  /// The asked checkpoint on its device.
  run::Model load(const run::Run& run) const;
  /// Throws Error when ranks that are to share the work would do different things.
  void require_same(dist::Group& ranks, const run::Model& model, int64_t images) const;
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
  void add_k(CLI::App& command);
  eval::JudgeOptions options(bool linear, bool knn) const;
};

}  // namespace ebclr::cli
