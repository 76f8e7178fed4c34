#include "cli/classify_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/answer.h"
#include "cli/checks.h"
#include "cli/finetune_command.h"
#include "cli/runtime.h"
#include "core/csv.h"
#include "core/files.h"
#include "core/text.h"
#include "data/folder.h"
#include "eval/features.h"
#include "index/classify.h"
#include "index/tuned.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

struct ClassifyArgs {
  std::string folder, labels, data, out, checkpoint = "last";
  int64_t suggest = 0, image_size = 0, seed = 0;
  bool json = false;
  RuntimeOptions runtime;
};

// Classes of every image and how they came about.
struct Guesses {
  std::vector<std::string> classes;
  torch::Tensor features, probabilities;    // [N, D], [N, C]
  std::optional<index::Classified> learnt;  // from labels now; without: the run's own classes
  index::Tuned tuned;                       // of those
};

Guesses guess(const ClassifyArgs& a, const run::Run& run, const run::Model& model,
              const data::ImageSet& set) {
  Guesses g;
  g.features = eval::features(*model.encoder, set);
  if (a.labels.empty()) {
    g.tuned = index::read_tuned(run);
    g.classes = g.tuned.classes;
    torch::NoGradGuard no_grad;
    const auto device = model.head->parameters().front().device();
    const auto logits = model.head->forward(g.features.to(device)).to(torch::kCPU);
    g.probabilities = (logits / g.tuned.temperature).softmax(1);
    return g;
  }
  g.classes = set.class_names;
  g.learnt = index::classify(g.features, set.labels, set.class_names,
                             {.first = data::first_of_equals(set), .seed = static_cast<uint64_t>(a.seed)});
  g.probabilities = g.learnt->probabilities;
  return g;
}

void print_guesses_json(const ClassifyArgs& a, const Guesses& g, int64_t images,
                        const std::vector<std::string>& next) {
  nlohmann::ordered_json j = {{"out", a.out}, {"images", images}};
  if (g.learnt) {
    const auto& s = g.learnt->held_out;
    j["labels"] = s.total;
    j["classes"] = g.classes;
    j["held_out_accuracy"] = s.accuracy;
    j["interval"] = {s.interval.low, s.interval.high};
    j["folds"] = g.learnt->folds;
    j["temperature"] = g.learnt->temperature;
    j["calibration_error"] = g.learnt->error_after;
    j["calibration_error_before"] = g.learnt->error_before;
  } else {
    add_tuned(j, g.tuned);
  }
  j["label_next"] = next;
  print_answer(j);
}

void print_outcome(const Guesses& g, int64_t images) {
  if (!g.learnt) {
    fmt::print("{} images by the run's own classes\n", images);
    print_tuned(g.tuned);
    return;
  }
  const auto& s = g.learnt->held_out;
  fmt::print("{} labels of {} classes, {} images\n", s.total, g.classes.size(), images);
  fmt::print("accuracy on labels that were held out ({} parts in turn): {:.1f} % (95 %: {:.1f} .. {:.1f})\n",
             g.learnt->folds, 100 * s.accuracy, 100 * s.interval.low, 100 * s.interval.high);
  fmt::print("stated probability and truth differ by {:.1f} points there (uncalibrated: {:.1f})\n",
             100 * g.learnt->error_after, 100 * g.learnt->error_before);
}

void run_classify(const ClassifyArgs& a) {
  core::check_writable(a.out, "classify");  // before anything takes time
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  if (a.labels.empty()) index::read_tuned(run);  // before images are read
  auto model = run.load(a.checkpoint);
  engine::place(*model.encoder, model.head.get(), runtime.placement());
  const int64_t size = a.image_size > 0 ? a.image_size : model.side;
  auto set = data::read_folder(
      a.data,
      {.image_size = size, .grayscale = model.encoder->options().channels == 1, .labels_csv = a.labels});
  // Folders say nothing about the classes that a run has learnt.
  if (a.labels.empty()) set.labels.fill_(data::kNoLabel);
  for (const auto& n : set.notes) fmt::print(stderr, "note: {}\n", n);
  const auto result = guess(a, run, model, set);
  const auto predictions = result.probabilities.argmax(1);
  const auto next = index::suggest(result.features, set.labels, result.probabilities, a.suggest);
  const auto given = [&](int64_t i) {
    const auto label = set.labels[i].item<int64_t>();
    return label < 0 ? std::string() : result.classes[static_cast<size_t>(label)];
  };
  std::vector<std::string> head = {"path", "given", "predicted", "probability", "label_next"};
  for (const auto& name : result.classes) head.push_back("p_" + name);
  std::string csv = core::csv_line(head);
  for (int64_t i = 0; i < set.size(); ++i) {
    const auto best = predictions[i].item<int64_t>();
    const auto rank = std::find(next.begin(), next.end(), i) - next.begin();
    std::vector<std::string> line = {
        set.files[static_cast<size_t>(i)], given(i), result.classes[static_cast<size_t>(best)],
        fmt::format("{:.4f}", result.probabilities[i][best].item<float>()),
        rank < static_cast<int64_t>(next.size()) ? std::to_string(rank + 1) : ""};
    for (int64_t c = 0; c < result.probabilities.size(1); ++c)
      line.push_back(fmt::format("{:.4f}", result.probabilities[i][c].item<float>()));
    csv += core::csv_line(line);
  }
  core::write_atomically(a.out, csv, "classify");
  std::vector<std::string> files;
  for (const auto i : next) files.push_back(set.files[static_cast<size_t>(i)]);
  if (a.json) {
    print_guesses_json(a, result, set.size(), files);
    return;
  }
  print_outcome(result, set.size());
  if (!files.empty()) fmt::print("label next:\n");
  for (const auto& f : files) fmt::print("  {}\n", core::one_line(f));
  fmt::print("wrote {}\n", a.out);
}

}  // namespace

void add_classify_command(CLI::App& app) {
  auto a = std::make_shared<ClassifyArgs>();
  auto* c = app.add_subcommand(
      "classify", "Sort images into classes, from a few labels or by those that finetune taught");
  c->add_option("RUN", a->folder, "Run folder")->required();
  c->add_option("--labels", a->labels,
                "CSV of path,label for a few of the images (default: the classes that finetune taught)");
  c->add_option("--data", a->data, "Folder of images; paths of the labels are relative to it")->required();
  c->add_option("--out", a->out, "CSV of predictions to write")->required();
  c->add_option("--suggest", a->suggest, "Also name this many images that are worth a label most")
      ->check(CLI::Range(0, 100000));
  c->add_option("--checkpoint", a->checkpoint, "Epoch or last")->capture_default_str();
  c->add_option("--image-size", a->image_size, "Side that images are read at (default: as in training)")
      ->check(CLI::Range(16, 1024));
  c->add_option("--seed", a->seed, "Of the held-out parts")->check(kNotNegative);
  c->add_flag("--json", a->json, "Print the outcome as JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { run_classify(*a); });
}

}  // namespace ebclr::cli
