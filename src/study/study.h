#pragma once
// A study as data: which runs, along which axes, judged how, what the paper found and what it claims. The
// shipped ones are the files of studies/; nothing here knows any of them by name.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ebclr::study {

/// Names this room in errors.
inline constexpr const char* kComponent = "study";

/// Key-value pairs of the configuration.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// One value of an axis, or one combination of several axes.
struct Value {
  std::string id;     ///< "ebclr", "cifar10/16"
  std::string label;  ///< "EBCLR", "CIFAR-10, batch 16"
  Settings set;
  std::string on;  ///< set to judge on; empty: the one it was trained on
};

/// A row and a column of a study's table.
struct CellId {
  std::string row, column;
  auto operator<=>(const CellId&) const = default;
};

/// What a claim compares.
enum class ClaimKind {
  kBetter,      ///< `rows` beat each of `than`, in every column
  kEqual,       ///< in each of `rows`, the columns of each of `pairs` differ by at most `within`
  kEqualRows,   ///< `rows` differ among each other by at most `within`, in every column
  kEfficiency,  ///< the reference reaches each of `rows` within `below` of its epochs
};

/// What a budget is counted in.
enum class Currency { kEpochs, kForwardUnits, kSeconds };

/// A claim of the paper that runs can support or not.
struct Claim {
  ClaimKind kind = ClaimKind::kBetter;
  std::string says;
  std::string judge;  ///< empty: the study's first
  std::vector<std::string> rows, than, columns;
  std::vector<std::pair<std::string, std::string>> pairs;
  double within = 0, below = 0;
  double by = 0;                    ///< kBetter: by at least this much; negative: not worse by more
  std::optional<Currency> at = {};  ///< kBetter: both sides spend the same, instead of each to its end
  std::string than_judge = {};      ///< kBetter: the other side is judged by this; empty: by the same
};

/// Settings that are tried for each row before the runs of a study, and how the best are found.
struct Tuning {
  std::string column;       ///< that the trials are made in; what is chosen holds for all columns
  std::string judge;        ///< of accuracies
  int64_t held_out = 5000;  ///< train images that no trial learns from: they judge
  int seed = 1000;          ///< of the trials
  std::vector<std::string> scales = {};                      ///< that are tuned; empty: all
  std::map<std::string, std::vector<Settings>> trials = {};  ///< by row, as many for each
};

/// A table or a figure of the paper.
struct Study {
  double order = 1e9;  ///< place in the list of all studies
  std::string name, title, source, about;
  std::vector<std::string> judges;  ///< names of judge_names(); the first is the paper's
  std::string row_axis, column_axis;
  std::vector<Value> rows, columns;  ///< columns has one nameless value where a study has no second axis
  Settings fixed;
  std::string reference;                                  ///< row that efficiency is relative to; empty: none
  std::map<std::string, std::map<CellId, double>> paper;  ///< by judge, and "efficiency"
  std::vector<Claim> claims;
  std::optional<Tuning> tuning;
  std::string tuned_by;  ///< the study whose tuning holds: its own name, that of another one, or empty
};

/// "linear", "knn" (1/L2 distance: the released code), "knn-dino" (cosine, T 0.07: the paper's text),
/// "frechet-noise" and "frechet-data" (samples by chains of a stated length from noise, and from views of
/// data), "strangers-energy", "-neighbour", "-mahalanobis" and "-combined" (mean AUROC in percent of telling
/// images that do not come from training).
const std::vector<std::string>& judge_names();
/// Does the judge measure a distance of samples, for which smaller is better, instead of an accuracy?
bool is_distance(const std::string& judge);
/// Does the judge give one number for the end of a run instead of a curve?
bool is_measured_once(const std::string& judge);

/// How a scale judges its runs.
struct Judging {
  int64_t probe_epochs = 200, probe_rates = 10;
  int64_t limit_test = 0;  ///< test images; 0: all
  int64_t frechet_samples = 2000, frechet_steps = 100;
  auto operator<=>(const Judging&) const = default;
};

/// A rule of studies/scales.yaml: where every `when` holds, `set` is applied below what the axes say.
struct Rule {
  Settings when, set;  ///< `when` may name "scale", "study" and any configured key
};

/// What runs are made of at each scale.
struct Scales {
  std::vector<std::string> names;
  std::vector<int> seeds;  ///< default number of seeds, by scale
  std::vector<std::string> about;
  std::vector<bool> decides;  ///< false: claims stay undecided, whatever the numbers say
  std::vector<Judging> judging;
  std::vector<std::string> like;  ///< a scale whose rules apply too, or empty
  std::vector<Rule> rules;

  /// Whether the rules of `other` apply at scale `name`: it is the same, or one that it is like.
  bool covers(const std::string& other, const std::string& name) const;
  /// Index of a scale; throws Error naming the nearest.
  size_t index(const std::string& name) const;
};

/// Reads a study; `origin` is named in errors.
Study parse_study(const std::string& name, const std::string& yaml, const std::string& origin);
/// Reads the scales.
Scales parse_scales(const std::string& yaml, const std::string& origin);

/// Names of the shipped studies, in the paper's order.
std::vector<std::string> study_names();
/// A shipped study by name, or one from a YAML file; throws Error naming the nearest.
Study load_study(const std::string& name_or_file);
/// The shipped scales.
Scales load_scales();

/// Settings of one run before seeds: the rules of the scale, then the study's fixed part, then the axes.
Settings settings_of(const Study& study, const Value& row, const Value& column, const std::string& scale,
                     const Scales& scales);

}  // namespace ebclr::study
