#pragma once
// The configuration: typed options, a documented key for each, and where each value came from.

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/views.h"
#include "methods/method.h"

namespace ebclr::run {

enum class OptimizerKind { kAdam, kSgd };
enum class ScheduleKind { kConstant, kCosine };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double lr = 0;  ///< 0: the paper's rule by method and batch size
  double weight_decay = 0;
  double momentum = 0.9;
  double beta1 = 0.9, beta2 = 0.999;
  ScheduleKind schedule = ScheduleKind::kConstant;
  double warmup_epochs = 0;
  double clip_norm = 0;  ///< 0: off
};

struct TrainOptions {
  int64_t epochs = 100;
  int64_t batch_size = 128;
  uint64_t seed = 0;
  std::string from = {};  ///< run whose encoder training starts from; empty: first weights from the seed
};

struct GuardOptions {
  int64_t tries = 3;       ///< roll-backs before giving up
  double lr_factor = 0.5;  ///< learning rate after each of them
  int64_t healthy = 50;    ///< steps beyond a checkpoint until it is good; at most an epoch
  int64_t recover = 1000;  ///< healthy steps beyond the last fault until the tries are counted anew
  double max_gap = 0;      ///< |E(samples) - E(data)|; 0: nine tenths of what tau allows
  double max_output_norm = 1e4;
  double max_grad_norm = 1e6;
  double collapse = 0.1;        ///< the spread counts as collapsed below this part of 1/sqrt(D)
  int64_t collapse_epochs = 5;  ///< a collapse within so many epochs is a fault, later a warning
};

struct CheckpointOptions {
  double minutes = 10;       ///< also a checkpoint after so many minutes
  int64_t every_epochs = 1;  ///< at the end of every so many epochs
  int64_t keep_every = 5;    ///< every so many epochs one is written and kept for good; 0: none
  int64_t keep_last = 2;
};

struct LogOptions {
  int64_t every = 10;         ///< steps between lines of metrics.jsonl
  int64_t samples_every = 5;  ///< epochs between pictures of chains; 0: never
  bool tensorboard = false;   ///< event files beside metrics.jsonl
};

struct MonitorOptions {
  int64_t knn_every = 0;  ///< epochs; 0: off
  int64_t train = 5000, test = 1000;
  std::string probe =
      {};  ///< labelled folder or CSV apart from the train images; empty: the run's own labels
};

/// Everything a run is made of.
struct Config {
  methods::MethodOptions method;
  data::SourceOptions data;
  data::ViewOptions views;
  OptimizerOptions optimizer;
  TrainOptions train;
  GuardOptions guard;
  CheckpointOptions checkpoint;
  LogOptions log;
  MonitorOptions monitor;

  /// Where each value came from: "default", "method simclr", a file's name, "--set", ...
  std::map<std::string, std::string> origins;

  /// Learning rate with the paper's rule applied.
  double effective_lr() const;
};

/// One documented key.
struct Field {
  std::string key, doc, choices;
  std::function<std::string(const Config&)> get;
  std::function<void(Config&, const std::string&)>
      set;  ///< throws std::invalid_argument with what is expected
};

/// The explicit table of all keys.
const std::vector<Field>& fields();

/// Key-value pairs with a common origin; later layers win.
struct Layer {
  std::string origin;
  std::vector<std::pair<std::string, std::string>> values;
};

/// A layer from YAML text (nested maps become dotted keys). The released code's files are recognised and
/// translated; what has no equivalent is added to `warnings` or is an error.
Layer parse_layer(const std::string& yaml, const std::string& origin, std::vector<std::string>& warnings);
/// A layer from a file or the name of a shipped configuration.
Layer read_layer(const std::string& file_or_name, std::vector<std::string>& warnings);
/// The layer of a run's own config.yaml; a file that was cut short is refused.
Layer read_run_layer(const std::filesystem::path& file);
/// "key=value" from the command line.
std::pair<std::string, std::string> parse_assignment(const std::string& text);

/// Throws Error when a key or a value of the layer is wrong by itself.
void check(const Layer& layer);
/// Defaults, the method's preset, then the layers in order; unknown keys are errors that name the nearest.
Config resolve(const std::vector<Layer>& layers);

/// Preset of a method as key-value pairs (what differs from the defaults, which are EBCLR's).
std::vector<std::pair<std::string, std::string>> method_preset(const std::string& method);

/// Whole configuration as YAML that resolves to the same one.
std::string to_yaml(const Config& config);

}  // namespace ebclr::run
