#include "cli/classify_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "core/csv.h"
#include "core/files.h"
#include "data/folder.h"
#include "eval/features.h"
#include "index/classify.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

struct ClassifyArgs {
  std::string folder, labels, data, out, checkpoint = "last";
  int64_t suggest = 0, image_size = 0, seed = 0;
  bool json = false;
  RuntimeOptions runtime;
};

void run_classify(const ClassifyArgs& a) {
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  auto model = run.load(a.checkpoint);
  engine::place(*model.encoder, model.head.get(), runtime.placement());
  const int64_t size = a.image_size > 0                ? a.image_size
                       : model.image_shape.size() == 3 ? model.image_shape[1]
                                                       : 32;
  const auto set = data::read_folder(
      a.data,
      {.image_size = size, .grayscale = model.encoder->options().channels == 1, .labels_csv = a.labels});
  for (const auto& n : set.notes) fmt::print(stderr, "note: {}\n", n);
  const auto features = eval::features(*model.encoder, set);
  const auto result =
      index::classify(features, set.labels, set.class_names, {.seed = static_cast<uint64_t>(a.seed)});
  const auto next = index::suggest(features, set.labels, result.probabilities, a.suggest);
  const auto given = [&](int64_t i) {
    const auto label = set.labels[i].item<int64_t>();
    return label < 0 ? std::string() : set.class_names[static_cast<size_t>(label)];
  };
  std::vector<std::string> head = {"path", "given", "predicted", "probability", "label_next"};
  for (const auto& name : set.class_names) head.push_back("p_" + name);
  std::string csv = core::csv_line(head);
  for (int64_t i = 0; i < set.size(); ++i) {
    const auto guess = result.predictions[i].item<int64_t>();
    const auto rank = std::find(next.begin(), next.end(), i) - next.begin();
    std::vector<std::string> line = {
        set.files[static_cast<size_t>(i)], given(i), set.class_names[static_cast<size_t>(guess)],
        fmt::format("{:.4f}", result.probabilities[i][guess].item<float>()),
        rank < static_cast<int64_t>(next.size()) ? std::to_string(rank + 1) : ""};
    for (int64_t c = 0; c < result.probabilities.size(1); ++c)
      line.push_back(fmt::format("{:.4f}", result.probabilities[i][c].item<float>()));
    csv += core::csv_line(line);
  }
  core::write_atomically(a.out, csv, "classify");
  const auto& s = result.held_out;
  if (a.json) {
    nlohmann::ordered_json j = {{"out", a.out},
                                {"images", set.size()},
                                {"labels", s.total},
                                {"classes", set.class_names},
                                {"held_out_accuracy", s.accuracy},
                                {"interval", {s.interval.low, s.interval.high}},
                                {"folds", result.folds},
                                {"temperature", result.temperature},
                                {"calibration_error", result.error_after},
                                {"calibration_error_before", result.error_before},
                                {"label_next", nlohmann::ordered_json::array()}};
    for (const auto i : next) j["label_next"].push_back(set.files[static_cast<size_t>(i)]);
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{} labels of {} classes, {} images\n", s.total, set.class_names.size(), set.size());
  fmt::print("accuracy on labels that were held out ({} parts in turn): {:.1f} % (95 %: {:.1f} .. {:.1f})\n",
             result.folds, 100 * s.accuracy, 100 * s.interval.low, 100 * s.interval.high);
  fmt::print("stated probability and truth differ by {:.1f} points there (uncalibrated: {:.1f})\n",
             100 * result.error_after, 100 * result.error_before);
  if (!next.empty()) fmt::print("label next:\n");
  for (const auto i : next) fmt::print("  {}\n", set.files[static_cast<size_t>(i)]);
  fmt::print("wrote {}\n", a.out);
}

}  // namespace

void add_classify_command(CLI::App& app) {
  auto a = std::make_shared<ClassifyArgs>();
  auto* c =
      app.add_subcommand("classify", "Sort images into classes from a few labels, the encoder left as it is");
  c->add_option("RUN", a->folder, "Run folder")->required();
  c->add_option("--labels", a->labels, "CSV of path,label for a few of the images")->required();
  c->add_option("--data", a->data, "Folder of images; paths of the labels are relative to it")->required();
  c->add_option("--out", a->out, "CSV of predictions to write")->required();
  c->add_option("--suggest", a->suggest, "Also name this many images that are worth a label most")
      ->check(CLI::Range(0, 100000));
  c->add_option("--checkpoint", a->checkpoint, "Epoch or last")->capture_default_str();
  c->add_option("--image-size", a->image_size, "Side that images are read at (default: as in training)")
      ->check(CLI::Range(16, 1024));
  c->add_option("--seed", a->seed, "Of the held-out parts")->check(CLI::NonNegativeNumber);
  c->add_flag("--json", a->json, "Print the outcome as JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { run_classify(*a); });
}

}  // namespace ebclr::cli
