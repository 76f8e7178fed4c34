#include "cli/eval_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/eval_options.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/strangers_command.h"
#include "cli/table.h"
#include "core/files.h"
#include "core/text.h"
#include "engine/engine.h"
#include "eval/judge.h"
#include "eval/untrained.h"
#include "plot/plot.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::vector<std::string>>;

std::string interval(const eval::Interval& i) {
  return fmt::format("{} .. {}", percent(i.low), percent(i.high));
}

void print_scores(const std::vector<eval::Row>& rows) {
  Lines lines{{"encoder", "judge", "protocol", "dim", "accuracy %", "95 % interval"}};
  for (const auto& r : rows)
    lines.push_back({r.epoch > 0 ? fmt::format("{}, epoch {}", r.subject, r.epoch) : r.subject, r.judge,
                     r.protocol, std::to_string(r.dimensions), percent(r.score.accuracy),
                     interval(r.score.interval)});
  print_table(lines);
}

// What each protocol means, once, and the learning rates that were chosen.
void print_protocols(const std::vector<eval::Row>& rows) {
  std::vector<std::string> said;
  for (const auto& r : rows) {
    const std::string line =
        fmt::format("{} {}", r.judge, r.judge == "knn" ? r.protocol + ": " + r.label : r.label);
    if (std::find(said.begin(), said.end(), line) == said.end()) said.push_back(line);
  }
  fmt::print("\n{}\n", core::join(said, "\n"));
  for (const auto& r : rows) {
    if (r.judge != "linear") continue;
    fmt::print("{}: learning rate {:.2g}{}\n", r.subject, r.rate,
               r.protocol == "paper"
                   ? " (chosen on test)"
                   : fmt::format(" ({} % on held-out train images)",
                                 percent(*std::max_element(r.grid_accuracy.begin(), r.grid_accuracy.end()))));
  }
}

// One column per row of the table; long lists belong into --json.
void print_classes(const std::vector<eval::Row>& rows, const eval::EvalSets& sets) {
  constexpr int64_t kMaxClasses = 20;
  if (sets.classes > kMaxClasses) {
    fmt::print("\n{} classes: accuracy per class is in --json\n", sets.classes);
    return;
  }
  Lines lines{{"accuracy % per class"}};
  for (const auto& r : rows)
    lines[0].push_back(fmt::format("{} {}", r.subject.substr(0, r.subject.find(' ')), r.judge));
  for (int64_t c = 0; c < sets.classes; ++c) {
    lines.push_back({sets.class_names[static_cast<size_t>(c)]});
    for (const auto& r : rows) lines.back().push_back(percent(r.score.per_class[static_cast<size_t>(c)]));
  }
  fmt::print("\n");
  print_table(lines);
}

void print_few_labels(const std::vector<eval::Row>& rows) {
  Lines lines{{"few labels (linear)", "labels/class", "mean %", "deviation", "draws"}};
  for (const auto& r : rows)
    for (const auto& f : r.few_labels)
      lines.push_back({r.subject, std::to_string(f.labels_per_class), percent(f.accuracy.mean),
                       percent(f.accuracy.deviation), std::to_string(f.accuracies.size())});
  if (lines.size() == 1) return;
  fmt::print("\n");
  print_table(lines);
}

std::string slug(std::string text) {
  for (char& c : text)
    c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : '_';
  return text;
}

std::vector<std::string> draw_confusions(const std::vector<eval::Row>& rows, const eval::EvalSets& sets,
                                         const std::string& folder) {
  std::vector<std::string> pictures;
  if (folder.empty()) return pictures;
  for (const auto& r : rows) {
    const fs::path file =
        fs::path(folder) / fmt::format("confusion_{}_{}_{}.png", slug(r.subject), r.judge, r.protocol);
    plot::write_png(file, plot::confusion_matrix(r.score.confusion, sets.class_names,
                                                 fmt::format("{}, {} ({}): {} %", r.subject, r.judge,
                                                             r.protocol, percent(r.score.accuracy))));
    pictures.push_back(file.string());
  }
  return pictures;
}

struct Judges {
  bool linear = true, knn = true, transfer = false;
};

struct EvalArgs {
  EncoderOptions encoder;
  JudgingOptions judging;
};

std::vector<eval::Row> judge_all(const EvalArgs& a, const Judges& judges, const run::Run& run,
                                 run::Model& model, const eval::EvalSets& sets,
                                 const eval::Progress& progress, const std::shared_ptr<dist::Group>& ranks) {
  const auto options = a.judging.options(judges.linear, judges.knn);
  std::vector<eval::Row> rows;
  const auto add = [&](const eval::Subject& subject) {
    if (ranks->rank() != 0) return;  // who has the features judges
    for (auto& row : eval::judge(subject, sets.classes, options, progress)) rows.push_back(std::move(row));
  };
  const auto wanted = [&](const char* name) {
    return std::find(a.judging.baselines.begin(), a.judging.baselines.end(), name) !=
           a.judging.baselines.end();
  };
  if (wanted("pixels")) add(eval::pixel_subject(sets));
  if (wanted("random")) {
    auto untrained = eval::untrained_model(run, sets);
    engine::place(*untrained.encoder, untrained.head.get(), a.encoder.runtime.placement());
    add(eval::encoder_subject("untrained encoder", untrained, sets, progress, ranks));
  }
  add(eval::encoder_subject("trained encoder", model, sets, progress, ranks));
  return rows;
}

void run_judges(EvalArgs& a, const Judges& judges, const std::shared_ptr<dist::Group>& ranks) {
  auto& source = a.encoder;
  if (ranks->rank() == 0 && !a.judging.plots.empty())  // before anything takes time
    core::check_writable(fs::path(a.judging.plots) / "confusion.png", "eval");
  const auto run = source.open();
  auto model = source.load(run);
  const auto where = source.source(run);
  ProgressLine line(source.json || ranks->rank() != 0);
  const auto sets = eval::make_eval_sets(source.images(run), model.encoder->options().channels,
                                         model.image_shape, source.grayscale);
  source.require_same(*ranks, model, sets.raw.train.size() + sets.raw.test.size());
  const auto rows = judge_all(a, judges, run, model, sets, line.function(), ranks);
  line.clear();
  if (ranks->rank() != 0) return;
  const auto pictures = draw_confusions(rows, sets, a.judging.plots);
  if (source.json) {
    nlohmann::json out{{"run", source.run},
                       {"method", run.config().method.name},
                       {"trained_on", run.config().data.source},
                       {"data", where.source},
                       {"transfer", judges.transfer},
                       {"step", model.position.step},
                       {"train_images", sets.raw.train.size()},
                       {"test_images", sets.raw.test.size()},
                       {"notes", sets.notes},
                       {"pictures", pictures},
                       {"rows", nlohmann::json::array()}};
    for (const auto& r : rows) out["rows"].push_back(eval::to_json(r, sets.class_names));
    print_answer(out);
    return;
  }
  fmt::print("{} ({}, trained on {}){} {}: {} train and {} test images, {} classes\n", source.run,
             run.config().method.name, run.config().data.source, judges.transfer ? " transferred to" : " on",
             where.source, sets.raw.train.size(), sets.raw.test.size(), sets.classes);
  for (const auto& n : sets.notes) fmt::print("note: {}\n", n);
  fmt::print("\n");
  print_scores(rows);
  print_protocols(rows);
  print_classes(rows, sets);
  print_few_labels(rows);
  if (!pictures.empty()) fmt::print("\nconfusion matrices:\n  {}\n", core::join(pictures, "\n  "));
}

}  // namespace

void add_eval_commands(CLI::App& app) {
  auto* eval =
      app.add_subcommand("eval", "Judge a trained encoder: linear probe, neighbours, transfer, curves");
  eval->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, const Judges& judges,
                       std::vector<std::string> baselines) {
    auto o = std::make_shared<EvalArgs>();
    o->judging.baselines = std::move(baselines);
    auto* c = eval->add_subcommand(name, about);
    o->encoder.add(*c, /*with_data=*/!judges.transfer);
    if (judges.transfer)
      c->add_option("--to", o->encoder.data, "Set by name or folder of images")->required();
    o->judging.add_common(*c);
    if (judges.linear) o->judging.add_linear(*c, "--protocol");
    if (judges.knn) o->judging.add_knn(*c, judges.linear ? "--knn-protocol" : "--protocol");
    c->callback([o, judges] { with_ranks([&](const auto& ranks) { run_judges(*o, judges, ranks); }); });
  };
  add("linear", "Linear classifier on frozen features", {.linear = true, .knn = false}, {});
  add("knn", "Exact weighted nearest neighbours", {.linear = false, .knn = true}, {});
  add("all", "Linear probe and neighbours, beside raw pixels and the untrained encoder", {},
      {"pixels", "random"});
  add("transfer", "The encoder on another data set, linear and neighbours", {.transfer = true}, {});
  add_curve_command(*eval);
  add_strangers_command(*eval);
}

}  // namespace ebclr::cli
