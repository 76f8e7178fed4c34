#include "eval/judge.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ebclr::eval {
namespace {

/// The labelled images of a split; says how many there are when it is not all of them.
data::ImageSet labelled_part(data::ImageSet set, const std::string& split, std::vector<std::string>& notes) {
  if (set.size() == 0)
    core::usage_error("eval", fmt::format("'{}' has no {} images; evaluation needs both splits (of a folder: "
                                          "data.test_fraction)",
                                          set.name, split));
  if (set.labelled()) return set;
  const auto rows =
      set.labels.defined() ? set.labels.ge(0).nonzero().flatten() : torch::empty({0}, torch::kInt64);
  if (rows.numel() == 0)
    core::usage_error(
        "eval", fmt::format("none of the {} {} images of '{}' has a label; evaluation needs labels (class "
                            "sub-folders or a CSV file of labels)",
                            set.size(), split, set.name));
  notes.push_back(
      fmt::format("{} of {} {} images have a label; only these are judged", rows.numel(), set.size(), split));
  return data::select(set, rows);
}

/// NaN has no JSON form.
nlohmann::json number(double v) {
  return std::isfinite(v) ? nlohmann::json(v) : nlohmann::json(nullptr);
}

}  // namespace

EvalSets make_eval_sets(data::TrainTest loaded, int64_t channels, const std::vector<int64_t>& trained_shape,
                        bool grayscale) {
  EvalSets sets;
  std::vector<std::string> partly;
  sets.raw.train = labelled_part(std::move(loaded.train), "train", partly);
  sets.raw.test = labelled_part(std::move(loaded.test), "test", partly);
  auto train = adapt(sets.raw.train, channels, trained_shape, grayscale);
  auto test = adapt(sets.raw.test, channels, trained_shape, grayscale);
  sets.adapted = {std::move(train.set), std::move(test.set)};
  sets.notes = std::move(train.notes);
  sets.notes.insert(sets.notes.end(), partly.begin(), partly.end());
  for (const auto* set : {&sets.raw.train, &sets.raw.test}) {
    sets.notes.insert(sets.notes.end(), set->notes.begin(), set->notes.end());
  }
  sets.class_names = sets.raw.train.class_names;
  sets.classes = std::max({sets.raw.train.classes(), sets.raw.train.labels.max().item<int64_t>() + 1,
                           sets.raw.test.labels.max().item<int64_t>() + 1});
  for (auto k = static_cast<int64_t>(sets.class_names.size()); k < sets.classes; ++k) {
    sets.class_names.push_back(std::to_string(k));
  }
  return sets;
}

Subject encoder_subject(const std::string& name, run::Model& model, const EvalSets& sets,
                        const Progress& progress, const std::shared_ptr<dist::Group>& ranks) {
  const auto total = static_cast<double>(sets.adapted.train.size() + sets.adapted.test.size());
  const double train_share = static_cast<double>(sets.adapted.train.size()) / total;
  auto part = [&](double offset, double share) -> std::function<void(double)> {
    if (!progress) return {};
    return [&progress, name, offset, share](double done) {
      progress("features of " + name, offset + share * done);
    };
  };
  Subject s{name, model.position.epoch, {}, {}};
  s.train = {features(*model.encoder, sets.adapted.train, {.progress = part(0, train_share), .ranks = ranks}),
             sets.raw.train.labels};
  s.test = {features(*model.encoder, sets.adapted.test,
                     {.progress = part(train_share, 1 - train_share), .ranks = ranks}),
            sets.raw.test.labels};
  return s;
}

Subject pixel_subject(const EvalSets& sets) {
  return {"raw pixels",
          -1,
          {pixel_features(sets.raw.train), sets.raw.train.labels},
          {pixel_features(sets.raw.test), sets.raw.test.labels}};
}

std::vector<Row> judge(const Subject& subject, int64_t classes, const JudgeOptions& options,
                       const Progress& progress) {
  std::vector<Row> rows;
  Row common;
  common.subject = subject.name;
  common.epoch = subject.epoch;
  common.dimensions = subject.train.features.size(1);
  common.train_images = subject.train.features.size(0);
  for (KnnOptions knn : options.neighbours) {
    if (progress) progress("neighbours of " + subject.name, 0);
    if (options.lower_k) knn.k = std::min(knn.k, subject.train.features.size(0));
    Row row = common;
    row.judge = "knn";
    row.protocol = knn.protocol;
    row.k = knn.k;
    row.label = label(knn);
    row.score = knn_score(subject.train, subject.test, classes, knn);
    rows.push_back(std::move(row));
  }
  if (options.linear) {
    ProbeOptions probe = options.probe;
    if (progress) {
      probe.progress = [&](double done) { progress("linear probe on " + subject.name, done); };
    }
    ProbeResult result = linear_probe(subject.train, subject.test, classes, probe);
    Row row = common;
    row.judge = "linear";
    row.protocol = name(result.protocol);
    row.label = label(result.protocol);
    row.rates = result.rates;
    row.grid_accuracy = result.grid_accuracy;
    row.rate = result.rates[result.best];
    row.score = std::move(result.test);
    if (!options.labels_per_class.empty()) {
      if (progress) {
        probe.progress = [&](double done) { progress("few labels, " + subject.name, done); };
      }
      row.few_labels = label_efficiency(subject.train, subject.test, classes, options.labels_per_class,
                                        options.draws, probe);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::json to_json(const Row& row, const std::vector<std::string>& class_names) {
  nlohmann::json j{{"subject", row.subject},
                   {"judge", row.judge},
                   {"protocol", row.protocol},
                   {"protocol_means", row.label},
                   {"dimensions", row.dimensions},
                   {"train_images", row.train_images},
                   {"test_images", row.score.total},
                   {"correct", row.score.correct},
                   {"accuracy", number(row.score.accuracy)},
                   {"interval95", {row.score.interval.low, row.score.interval.high}}};
  if (row.epoch >= 0) j["epoch"] = row.epoch;
  if (row.judge == "knn") j["k"] = row.k;
  if (row.judge == "linear") {
    j["learning_rate"] = row.rate;
    j["learning_rate_chosen_on"] = row.protocol == "honest" ? "held-out part of train" : "test";
    j["grid"] = nlohmann::json::array();
    for (size_t i = 0; i < row.rates.size(); ++i) {
      j["grid"].push_back({{"learning_rate", row.rates[i]}, {"accuracy", number(row.grid_accuracy[i])}});
    }
  }
  j["per_class"] = nlohmann::json::array();
  for (size_t c = 0; c < row.score.per_class.size(); ++c) {
    j["per_class"].push_back({{"class", c < class_names.size() ? class_names[c] : std::to_string(c)},
                              {"accuracy", number(row.score.per_class[c])}});
  }
  const auto counts = row.score.confusion.contiguous();
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const auto* line = counts.data_ptr<int64_t>() + i * counts.size(1);
    j["confusion"].push_back(std::vector<int64_t>(line, line + counts.size(1)));
  }
  for (const auto& few : row.few_labels) {
    j["few_labels"].push_back({{"labels_per_class", few.labels_per_class},
                               {"accuracy_mean", few.accuracy.mean},
                               {"accuracy_deviation", few.accuracy.deviation},
                               {"draws", few.accuracies}});
  }
  return j;
}

}  // namespace ebclr::eval
