#include "cli/eval_command.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/progress.h"
#include "cli/runtime.h"
#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "core/npy.h"
#include "core/text.h"
#include "data/catalog.h"
#include "data/other_set.h"
#include "engine/engine.h"
#include "eval/curve.h"
#include "eval/judge.h"
#include "eval/tsne.h"
#include "plot/plot.h"
#include "run/run.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEvalComponent = "eval";

/// Which run, which checkpoint, which images: shared by all commands here.
struct Source {
  std::string run, data, checkpoint = "last", data_root;
  int64_t image_size = 0, limit = -1, limit_test = -1;
  double test_fraction = -1;
  std::string labels_csv;
  bool grayscale = false, json = false;
  RuntimeOptions runtime_options;
  Runtime runtime;  // set by open()

  void add(CLI::App& c, bool with_data = true) {
    c.add_option("RUN", run, "Run folder")->required();
    c.add_option("--checkpoint", checkpoint, "Epoch number or 'last'")->capture_default_str();
    if (with_data) c.add_option("--data", data, "Set by name or folder of images (default: the run's own)");
    c.add_option("--data-root", data_root, "Where sets are kept (default: the run's, else $EBCLR_DATA)");
    c.add_option("--image-size", image_size, "Folders: short side after resizing (default: the run's)");
    c.add_option("--labels-csv", labels_csv, "Folders: CSV of path,label");
    c.add_option("--test-fraction", test_fraction, "Folders: part that becomes the test split");
    c.add_option("--limit", limit, "At most this many train images, class-balanced (0: all)");
    c.add_option("--limit-test", limit_test, "The same for the test split");
    c.add_flag("--grayscale", grayscale, "Convert colour images for a grey encoder");
    add_runtime_options(c, runtime_options);
    c.add_flag("--json", json, "Print JSON instead of a table");
  }

  data::SourceOptions options(const run::Run& r) const {
    auto o = data::other_set(r.config().data, data);
    if (!data_root.empty()) o.data_root = data_root;
    if (image_size > 0) o.image_size = image_size;
    if (!labels_csv.empty()) o.labels_csv = labels_csv;
    if (test_fraction >= 0) o.test_fraction = test_fraction;
    if (limit >= 0) o.limit = limit;
    if (limit_test >= 0) o.limit_test = limit_test;
    return o;
  }

  /// Opens the run and makes the machine ready.
  run::Run open() {
    runtime = apply(runtime_options);
    return run::Run::open(run);
  }
  void prepare(run::Model& model) const {
    engine::place(*model.encoder, model.head.get(), runtime.placement());
  }
  run::Model load(const run::Run& r) const {
    auto model = r.load(checkpoint);
    prepare(model);
    return model;
  }
};

/// How to judge, from the command line.
struct Judging {
  std::string linear_protocol = "honest", knn_protocol = "paper", plots;
  std::vector<std::string> baselines;
  std::vector<int64_t> labels_per_class;
  int64_t k = 0, epochs = 200, batch = 512;
  int draws = 5, rates = 10;
  uint64_t seed = 0;
  bool standardise = false;

  void add_common(CLI::App& c) {
    c.add_option("--plots", plots, "Folder for confusion matrices as PNG");
    c.add_option("--baseline", baselines, "Also judge: random (untrained encoder), pixels")
        ->delimiter(',')
        ->check(CLI::IsMember({"random", "pixels"}));
    c.add_option("--seed", seed, "Of splits, batches and first weights")->capture_default_str();
  }
  void add_linear(CLI::App& c, const std::string& protocol_name) {
    c.add_option(protocol_name, linear_protocol,
                 "honest: rate chosen on a held-out part of train; paper: best on test")
        ->check(CLI::IsMember({"honest", "paper"}))
        ->capture_default_str();
    c.add_option("--labels-per-class", labels_per_class, "Also probe with so few labels, e.g. 1,10,100")
        ->delimiter(',');
    c.add_option("--draws", draws, "Draws of those labels")->capture_default_str();
    c.add_option("--probe-epochs", epochs, "Epochs of the probe")->capture_default_str();
    c.add_option("--probe-batch", batch, "Batch size of the probe")->capture_default_str();
    c.add_option("--rates", rates, "Learning rates between 1e-4 and 1e-1")->capture_default_str();
    c.add_flag("--standardise", standardise, "Scale features to mean 0, deviation 1");
  }
  void add_knn(CLI::App& c, const std::string& protocol_name) {
    c.add_option(protocol_name, knn_protocol,
                 "paper (K 20, 1/L2), dino (K 20, cosine, T 0.07) or moco (K 200, cosine, T 0.1)")
        ->check(CLI::IsMember({"paper", "dino", "moco"}))
        ->capture_default_str();
    c.add_option("--k", k, "Neighbours (default: the protocol's)");
  }

  eval::JudgeOptions options(bool linear, bool knn) const {
    eval::JudgeOptions o;
    o.linear = linear;
    o.knn = knn;
    o.probe.protocol = eval::probe_protocol(linear_protocol);
    o.probe.epochs = epochs;
    o.probe.batch_size = batch;
    o.probe.rates = eval::ProbeOptions::log_grid(-4, -1, rates);
    o.probe.standardise = standardise;
    o.probe.seed = seed;
    o.neighbours = eval::knn_protocol(knn_protocol);
    if (k > 0) o.neighbours.k = k;
    o.labels_per_class = labels_per_class;
    o.draws = draws;
    return o;
  }
};

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f}", 100 * share) : "-";
}

/// Prints aligned columns; the first is left-aligned, the rest right-aligned.
void print_table(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  for (size_t l = 0; l < lines.size(); ++l) {
    std::string text;
    for (size_t c = 0; c < lines[l].size(); ++c) {
      text += c == 0 ? fmt::format("{:<{}}", lines[l][c], widths[c])
                     : fmt::format("  {:>{}}", lines[l][c], widths[c]);
    }
    fmt::print("{}\n", text);
    if (l == 0) fmt::print("{}\n", std::string(text.size(), '-'));
  }
}

void print_rows(const std::vector<eval::Row>& rows, const eval::Bench& bench) {
  std::vector<std::vector<std::string>> lines{
      {"encoder", "judge", "protocol", "dim", "accuracy %", "95 % interval"}};
  for (const auto& r : rows) {
    lines.push_back({r.epoch > 0 ? fmt::format("{}, epoch {}", r.subject, r.epoch) : r.subject, r.judge,
                     r.protocol, std::to_string(r.dimensions), percent(r.score.accuracy),
                     fmt::format("{} .. {}", percent(r.score.interval.low), percent(r.score.interval.high))});
  }
  print_table(lines);
  std::vector<std::string> said;
  for (const auto& r : rows) {
    const std::string line =
        fmt::format("{} {}", r.judge, r.judge == "knn" ? r.protocol + ": " + r.label : r.label);
    if (std::find(said.begin(), said.end(), line) == said.end()) said.push_back(line);
  }
  fmt::print("\n");
  for (const auto& s : said) fmt::print("{}\n", s);
  for (const auto& r : rows) {
    if (r.judge != "linear") continue;
    fmt::print("{}: learning rate {:.2g}{}\n", r.subject, r.rate,
               r.protocol == "paper"
                   ? " (chosen on test)"
                   : fmt::format(" ({} % on held-out train images)",
                                 percent(*std::max_element(r.grid_accuracy.begin(), r.grid_accuracy.end()))));
  }
  // Per class, one column per row of the table; long lists belong into --json.
  constexpr int64_t kMaxClasses = 20;
  if (bench.classes <= kMaxClasses) {
    std::vector<std::vector<std::string>> classes{{"accuracy % per class"}};
    for (const auto& r : rows)
      classes[0].push_back(fmt::format("{} {}", r.subject.substr(0, r.subject.find(' ')), r.judge));
    for (int64_t c = 0; c < bench.classes; ++c) {
      classes.push_back({bench.class_names[c]});
      for (const auto& r : rows) classes.back().push_back(percent(r.score.per_class[c]));
    }
    fmt::print("\n");
    print_table(classes);
  } else {
    fmt::print("\n{} classes: accuracy per class is in --json\n", bench.classes);
  }
  std::vector<std::vector<std::string>> few{
      {"few labels (linear)", "labels/class", "mean %", "deviation", "draws"}};
  for (const auto& r : rows) {
    for (const auto& f : r.few_labels) {
      few.push_back({r.subject, std::to_string(f.labels_per_class), percent(f.accuracy.mean),
                     percent(f.accuracy.deviation), std::to_string(f.accuracies.size())});
    }
  }
  if (few.size() > 1) {
    fmt::print("\n");
    print_table(few);
  }
}

std::string slug(std::string text) {
  for (char& c : text)
    c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : '_';
  return text;
}

void run_judges(Source& source, const Judging& judging, bool linear, bool knn, bool transfer) {
  const auto run = source.open();
  auto model = source.load(run);
  const auto options = judging.options(linear, knn);
  const auto where = source.options(run);
  ProgressLine line(source.json);
  const auto bench = eval::make_bench(data::load(where), model.encoder->options().channels, model.image_shape,
                                      source.grayscale);
  const auto progress = line.function();
  std::vector<eval::Row> rows;
  auto add = [&](const eval::Subject& subject) {
    for (auto& row : eval::judge(subject, bench.classes, options, progress)) rows.push_back(std::move(row));
  };
  auto wanted = [&](const char* name) {
    return std::find(judging.baselines.begin(), judging.baselines.end(), name) != judging.baselines.end();
  };
  if (wanted("pixels")) add(eval::pixel_subject(bench));
  if (wanted("random")) {
    const auto& images = bench.adapted.train;
    auto untrained = run.untrained({images.channels(), images.height(), images.width()});
    source.prepare(untrained);
    add(eval::encoder_subject("untrained encoder", untrained, bench, progress));
  }
  add(eval::encoder_subject("trained encoder", model, bench, progress));
  line.clear();

  std::vector<std::string> pictures;
  if (!judging.plots.empty()) {
    for (const auto& r : rows) {
      const fs::path file = fs::path(judging.plots) /
                            fmt::format("confusion_{}_{}_{}.png", slug(r.subject), r.judge, r.protocol);
      plot::write_png(file, plot::confusion_matrix(r.score.confusion, bench.class_names,
                                                   fmt::format("{}, {} ({}): {} %", r.subject, r.judge,
                                                               r.protocol, percent(r.score.accuracy))));
      pictures.push_back(file.string());
    }
  }
  if (source.json) {
    nlohmann::json out{{"run", source.run},
                       {"method", run.config().method.name},
                       {"trained_on", run.config().data.source},
                       {"data", where.source},
                       {"transfer", transfer},
                       {"train_images", bench.raw.train.size()},
                       {"test_images", bench.raw.test.size()},
                       {"notes", bench.notes},
                       {"pictures", pictures},
                       {"rows", nlohmann::json::array()}};
    for (const auto& r : rows) out["rows"].push_back(eval::to_json(r, bench.class_names));
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{} ({}, trained on {}){} {}: {} train and {} test images, {} classes\n", source.run,
             run.config().method.name, run.config().data.source, transfer ? " transferred to" : " on",
             where.source, bench.raw.train.size(), bench.raw.test.size(), bench.classes);
  for (const auto& n : bench.notes) fmt::print("note: {}\n", n);
  fmt::print("\n");
  print_rows(rows, bench);
  if (!pictures.empty()) fmt::print("\nconfusion matrices:\n  {}\n", core::join(pictures, "\n  "));
}

// --- curves
// --------------------------------------------------------------------------------------------------------

void run_curve(Source& source, const Judging& judging, const std::string& judge,
               const std::string& plot_file) {
  const auto run = source.open();
  auto checkpoints = run.checkpoints();
  if (checkpoints.empty()) run.load("last");  // throws with what to do
  const auto options = judging.options(judge == "linear", judge == "knn");
  const auto where = source.options(run);
  ProgressLine line(source.json);
  auto sets = data::load(where);
  auto first = run.load(checkpoints.front().file);
  const auto bench = eval::make_bench(std::move(sets), first.encoder->options().channels, first.image_shape,
                                      source.grayscale);
  eval::Curve curve{run.config().method.name,
                    where.source,
                    judge,
                    judge == "knn" ? judging.knn_protocol : judging.linear_protocol,
                    bench.raw.train.size(),
                    bench.raw.test.size(),
                    {}};
  const auto progress = line.function();
  std::vector<eval::Row> rows;
  auto point = [&](const std::string& name, run::Model& model, const run::Position& at) {
    source.prepare(model);
    rows.push_back(
        eval::judge(eval::encoder_subject(name, model, bench, progress), bench.classes, options, progress)
            .at(0));
    const double batches = at.step > 0 && at.epoch > 0
                               ? static_cast<double>(at.step - at.batch) / static_cast<double>(at.epoch)
                               : 0;
    const double part = batches > 0 ? static_cast<double>(at.batch) / batches : 0;
    curve.points.push_back(
        {static_cast<double>(at.epoch) + part, at.seconds, at.forward_units, rows.back().score.accuracy});
  };
  const auto& images = bench.adapted.train;
  auto untrained = run.untrained({images.channels(), images.height(), images.width()});
  point("untrained encoder", untrained, {});
  for (const auto& c : checkpoints) {
    auto model = run.load(c.file);
    point(fmt::format("epoch {}", c.position.epoch), model, c.position);
  }
  line.clear();
  const fs::path file = eval::curve_file(source.run, judge, curve.protocol);
  eval::write_curve(file, curve);
  fs::path csv = file;
  csv.replace_extension(".csv");
  std::string text = "epoch,seconds,forward_units,accuracy,low95,high95\n";
  plot::Series series{curve.method, {}, {}, {}, {}, false, true};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& p = curve.points[i];
    const auto& interval = rows[i].score.interval;
    text += fmt::format("{:g},{:.3f},{:.0f},{:.6f},{:.6f},{:.6f}\n", p.epoch, p.seconds, p.forward_units,
                        p.accuracy, interval.low, interval.high);
    series.x.push_back(p.epoch);
    series.y.push_back(p.accuracy);
    series.low.push_back(interval.low);
    series.high.push_back(interval.high);
  }
  core::write_atomically(csv, text, kEvalComponent);
  fs::path picture = plot_file;
  if (picture.empty()) picture = fs::path(file).replace_extension(".png");
  plot::write_png(
      picture, plot::line_chart({series}, {.title = fmt::format("{} on {} ({}, {})", source.run, curve.data,
                                                                judge, curve.protocol),
                                           .x_label = "epochs",
                                           .y_label = "test accuracy"}));
  if (source.json) {
    nlohmann::json out{{"run", source.run},
                       {"method", curve.method},
                       {"data", curve.data},
                       {"judge", judge},
                       {"protocol", curve.protocol},
                       {"protocol_means", rows.front().label},
                       {"files", {file.string(), csv.string(), picture.string()}},
                       {"notes", bench.notes}};
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& p = curve.points[i];
      out["points"].push_back({{"epoch", p.epoch},
                               {"seconds", p.seconds},
                               {"forward_units", p.forward_units},
                               {"accuracy", p.accuracy},
                               {"interval95", {rows[i].score.interval.low, rows[i].score.interval.high}}});
    }
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("{} on {}, {} ({})\n\n", source.run, curve.data, judge, rows.front().label);
  std::vector<std::vector<std::string>> lines{
      {"epoch", "seconds", "forward-units", "accuracy %", "95 % interval"}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& p = curve.points[i];
    lines.push_back(
        {i == 0 ? "untrained" : fmt::format("{:g}", p.epoch), fmt::format("{:.1f}", p.seconds),
         fmt::format("{:.3g}", p.forward_units), percent(p.accuracy),
         fmt::format("{} .. {}", percent(rows[i].score.interval.low), percent(rows[i].score.interval.high))});
  }
  print_table(lines);
  fmt::print("\nwritten: {}, {}, {}\n", file.string(), csv.string(), picture.string());
}

struct Compare {
  std::vector<std::string> runs;
  std::string reference, judge = "knn", protocol, plot;
  bool json = false;
};

void run_compare(const Compare& o) {
  if (o.runs.size() < 2)
    core::usage_error(kEvalComponent,
                      fmt::format("compare was given {} run; give two or more", o.runs.size()));
  const std::string protocol = o.protocol.empty() ? (o.judge == "knn" ? "paper" : "honest") : o.protocol;
  std::vector<eval::Curve> curves;
  for (const auto& r : o.runs) {
    const auto file = eval::curve_file(r, o.judge, protocol);
    if (!fs::is_directory(r)) core::usage_error(kEvalComponent, fmt::format("{}: no such run folder", r));
    if (!fs::exists(file)) {
      core::usage_error(
          kEvalComponent,
          fmt::format("{} has no {} curve ({}); make it: ebclr eval curve {} --judge {} --protocol {}", r,
                      o.judge, protocol, r, o.judge, protocol));
    }
    curves.push_back(eval::read_curve(file));
    eval::check_comparable(curves.front(), curves.back());
  }
  // The paper measures everyone against EBCLR.
  size_t reference = 0;
  bool found = false;
  for (size_t i = 0; i < o.runs.size() && !found; ++i) {
    found = o.reference.empty() ? curves[i].method == "ebclr" : fs::path(o.runs[i]) == fs::path(o.reference);
    if (found) reference = i;
  }
  if (!found && !o.reference.empty()) {
    core::usage_error(kEvalComponent,
                      fmt::format("--reference {} is not among the runs; give it there too", o.reference));
  }
  auto shown = [](const std::optional<double>& v) {
    return v ? fmt::format("{:.3f}", *v) : std::string("not reached");
  };
  auto json_of = [](const std::optional<double>& v) {
    return v ? nlohmann::json(*v) : nlohmann::json(nullptr);
  };
  std::vector<std::vector<std::string>> lines{
      {"run", "method", "final accuracy %", "reached at epoch", "epochs", "seconds", "forward-units"}};
  nlohmann::json out{{"reference", o.runs[reference]},
                     {"data", curves[reference].data},
                     {"judge", o.judge},
                     {"protocol", protocol},
                     {"runs", nlohmann::json::array()}};
  std::vector<plot::Series> by_epoch, by_time, by_units;
  for (size_t i = 0; i < curves.size(); ++i) {
    const auto e = eval::relative_efficiency(curves[reference].points, curves[i].points);
    lines.push_back({o.runs[i] + (i == reference ? " (reference)" : ""), curves[i].method, percent(e.target),
                     e.reached ? fmt::format("{:g}", e.reached->epoch) : "never", shown(e.epochs),
                     shown(e.seconds), shown(e.forward_units)});
    out["runs"].push_back({{"run", o.runs[i]},
                           {"method", curves[i].method},
                           {"final_accuracy", e.target},
                           {"reached", e.reached.has_value()},
                           {"efficiency_epochs", json_of(e.epochs)},
                           {"efficiency_seconds", json_of(e.seconds)},
                           {"efficiency_forward_units", json_of(e.forward_units)}});
    const std::string name =
        fmt::format("{} ({})", curves[i].method, fs::path(o.runs[i]).filename().string());
    plot::Series a{name, {}, {}, {}, {}, false, true}, b = a, c = a;
    for (const auto& p : curves[i].points) {
      a.x.push_back(p.epoch), b.x.push_back(p.seconds), c.x.push_back(p.forward_units);
      a.y.push_back(p.accuracy), b.y.push_back(p.accuracy), c.y.push_back(p.accuracy);
    }
    by_epoch.push_back(a), by_time.push_back(b), by_units.push_back(c);
  }
  if (!o.plot.empty()) {
    auto chart = [&](const std::vector<plot::Series>& s, const char* x) {
      return plot::line_chart(s, {.title = fmt::format("{} ({}) on {}", o.judge, protocol, curves[0].data),
                                  .x_label = x,
                                  .y_label = "test accuracy",
                                  .width = 520,
                                  .height = 400});
    };
    plot::write_png(o.plot,
                    plot::side_by_side({chart(by_epoch, "epochs"), chart(by_time, "seconds of training"),
                                        chart(by_units, "forward-units")}));
    out["picture"] = o.plot;
  }
  if (o.json) {
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print(
      "Relative efficiency on {} ({}, {}): what {} needed to reach each run's final accuracy,\n"
      "as a part of all that run spent. Below 1: the reference is quicker in that currency.\n\n",
      curves[reference].data, o.judge, protocol, o.runs[reference]);
  print_table(lines);
  if (!found) fmt::print("\nnote: no EBCLR run among them; the first one is the reference\n");
  if (!o.plot.empty()) fmt::print("\nwritten: {}\n", o.plot);
}

// --- embeddings
// ----------------------------------------------------------------------------------------------------

/// One split, or both one after the other.
data::ImageSet pick_split(data::TrainTest sets, const std::string& split) {
  if (split == "train") return std::move(sets.train);
  if (split == "test") return std::move(sets.test);
  if (sets.test.size() == 0) return std::move(sets.train);
  data::ImageSet all = sets.train;
  all.split = "all";
  if (all.files.empty()) {
    for (const auto* part : {&sets.train, &sets.test}) {
      for (int64_t i = 0; i < part->size(); ++i) {
        all.files.push_back(fmt::format("{}/{}/{}", part->name, part->split, i));
      }
    }
  } else {
    all.files.insert(all.files.end(), sets.test.files.begin(), sets.test.files.end());
  }
  all.pixels = torch::cat({sets.train.pixels, sets.test.pixels});
  all.labels = torch::cat({sets.train.labels, sets.test.labels});
  return all;
}

std::string image_name(const data::ImageSet& set, int64_t i) {
  if (i < static_cast<int64_t>(set.files.size())) return set.files[i];
  return fmt::format("{}/{}/{}", set.name, set.split, i);
}

void run_embed(Source& source, const std::string& out, const std::string& what, const std::string& split,
               bool csv) {
  if (fs::path(out).extension() != ".npy") {
    core::usage_error(
        kEvalComponent,
        fmt::format("--out {} does not end in .npy; features are written as a NumPy array", out));
  }
  const auto run = source.open();
  auto model = source.load(run);
  const auto where = source.options(run);
  auto picked = pick_split(data::load(where), split);
  if (picked.size() == 0)
    core::usage_error(kEvalComponent, fmt::format("'{}' has no {} images", where.source, split));
  const auto adapted =
      eval::adapt(std::move(picked), model.encoder->options().channels, model.image_shape, source.grayscale);
  const auto& set = adapted.set;
  ProgressLine line(source.json);
  eval::FeatureOptions o;
  if (what == "projection") o.head = model.head.get();
  o.progress = [&](double share) { line.show("features", share); };
  const auto features = eval::features(*model.encoder, set, o);
  line.clear();
  const fs::path npy = out;
  if (npy.has_parent_path()) {
    std::error_code error;
    fs::create_directories(npy.parent_path(), error);
    if (error)
      core::usage_error(kEvalComponent,
                        fmt::format("cannot create {} ({})", npy.parent_path().string(), error.message()));
  }
  core::write_npy(npy, features);
  std::vector<std::string> written{npy.string()};
  auto beside = [&](const char* extension) { return fs::path(npy).replace_extension(extension); };
  {
    core::AtomicFile file(beside(".files.txt"), kEvalComponent);
    for (int64_t i = 0; i < set.size(); ++i) file.write(image_name(set, i) + "\n");
    file.commit();
    written.push_back(beside(".files.txt").string());
  }
  const bool labels = set.labels.defined() && set.labels.ge(0).any().item<bool>();
  if (labels) {
    core::write_npy(beside(".labels.npy"), set.labels);
    written.push_back(beside(".labels.npy").string());
  }
  if (csv) {
    core::AtomicFile file(beside(".csv"), kEvalComponent);
    std::string text = "file,label";
    for (int64_t d = 0; d < features.size(1); ++d) text += fmt::format(",f{}", d);
    text += "\n";
    const float* value = features.data_ptr<float>();
    for (int64_t i = 0; i < set.size(); ++i) {
      const std::string name = core::csv_field(image_name(set, i));
      const int64_t label = set.labels.defined() ? set.labels[i].item<int64_t>() : data::kNoLabel;
      text += name + "," + (label >= 0 ? std::to_string(label) : "");
      for (int64_t d = 0; d < features.size(1); ++d)
        text += fmt::format(",{:.7g}", value[i * features.size(1) + d]);
      text += "\n";
      if (text.size() > (1u << 20)) file.write(text), text.clear();
    }
    file.write(text);
    file.commit();
    written.push_back(beside(".csv").string());
  }
  if (source.json) {
    fmt::print("{}\n", nlohmann::json{{"run", source.run},
                                      {"data", where.source},
                                      {"split", set.split},
                                      {"what", what},
                                      {"images", features.size(0)},
                                      {"dimensions", features.size(1)},
                                      {"epoch", model.position.epoch},
                                      {"files", written},
                                      {"notes", adapted.notes}}
                           .dump(2));
    return;
  }
  for (const auto& n : adapted.notes) fmt::print("note: {}\n", n);
  fmt::print("{} of {} {} images, {} dimensions: {}\n", what, features.size(0), where.source,
             features.size(1), core::join(written, ", "));
}

struct Map {
  std::string out, method = "both", split = "test";
  int64_t points = 2000;
  int iterations = 750;
  double perplexity = 30;
  uint64_t seed = 0;
};

void run_map(Source& source, const Map& o) {
  const auto run = source.open();
  auto model = source.load(run);
  const auto where = source.options(run);
  auto picked = pick_split(data::load(where), o.split);
  if (picked.size() == 0)
    core::usage_error(kEvalComponent,
                      fmt::format("'{}' has no {} images; try --split train", where.source, o.split));
  const auto adapted = eval::adapt(data::limit(picked, o.points, o.seed), model.encoder->options().channels,
                                   model.image_shape, source.grayscale);
  ProgressLine line(source.json);
  eval::FeatureOptions f;
  f.progress = [&](double share) { line.show("features", share); };
  const auto features = eval::features(*model.encoder, adapted.set, f);
  if (!features.isfinite().all().item<bool>()) {
    core::usage_error(kEvalComponent,
                      "features are NaN or infinite; the encoder has diverged: use an earlier checkpoint");
  }
  std::vector<plot::Image> pictures;
  auto draw = [&](const torch::Tensor& points, const char* name) {
    pictures.push_back(
        plot::scatter_map(points, adapted.set.labels, adapted.set.class_names,
                          {.title = fmt::format("{} of {} on {}, epoch {}", name, run.config().method.name,
                                                where.source, model.position.epoch),
                           .width = 560,
                           .height = 580}));
  };
  if (o.method != "tsne") draw(eval::pca(features, 2), "PCA");
  if (o.method != "pca") {
    eval::TsneOptions t{.perplexity = o.perplexity, .iterations = o.iterations};
    t.exaggerated = std::min(t.exaggerated, o.iterations / 3);
    t.progress = [&](int done) { line.show("t-SNE", static_cast<double>(done) / o.iterations); };
    draw(eval::tsne(features, t), "t-SNE");
  }
  line.clear();
  plot::write_png(o.out, plot::side_by_side(pictures));
  if (source.json) {
    fmt::print("{}\n", nlohmann::json{{"run", source.run},
                                      {"data", where.source},
                                      {"points", features.size(0)},
                                      {"method", o.method},
                                      {"file", o.out},
                                      {"notes", adapted.notes}}
                           .dump(2));
    return;
  }
  for (const auto& n : adapted.notes) fmt::print("note: {}\n", n);
  fmt::print("map of {} {} images: {}\n", features.size(0), where.source, o.out);
}

}  // namespace

void add_eval_commands(CLI::App& app) {
  auto* eval =
      app.add_subcommand("eval", "Judge a trained encoder: linear probe, neighbours, transfer, curves");
  eval->require_subcommand(1);

  struct Options {
    Source source;
    Judging judging;
    std::string text, judge = "knn", protocol;
  };
  {
    auto o = std::make_shared<Options>();
    auto* c = eval->add_subcommand("linear", "Linear classifier on frozen features");
    o->source.add(*c);
    o->judging.add_common(*c);
    o->judging.add_linear(*c, "--protocol");
    c->callback([o] { run_judges(o->source, o->judging, true, false, false); });
  }
  {
    auto o = std::make_shared<Options>();
    auto* c = eval->add_subcommand("knn", "Exact weighted nearest neighbours");
    o->source.add(*c);
    o->judging.add_common(*c);
    o->judging.add_knn(*c, "--protocol");
    c->callback([o] { run_judges(o->source, o->judging, false, true, false); });
  }
  {
    auto o = std::make_shared<Options>();
    auto* c = eval->add_subcommand(
        "all", "Linear probe and neighbours, beside raw pixels and the untrained encoder");
    o->judging.baselines = {"pixels", "random"};
    o->source.add(*c);
    o->judging.add_common(*c);
    o->judging.add_linear(*c, "--protocol");
    o->judging.add_knn(*c, "--knn-protocol");
    c->callback([o] { run_judges(o->source, o->judging, true, true, false); });
  }
  {
    auto o = std::make_shared<Options>();
    auto* c = eval->add_subcommand("transfer", "The encoder on another data set, linear and neighbours");
    o->source.add(*c, /*with_data=*/false);
    c->add_option("--to", o->source.data, "Set by name or folder of images")->required();
    o->judging.add_common(*c);
    o->judging.add_linear(*c, "--protocol");
    o->judging.add_knn(*c, "--knn-protocol");
    c->callback([o] { run_judges(o->source, o->judging, true, true, true); });
  }
  {
    auto o = std::make_shared<Options>();
    auto* c = eval->add_subcommand("curve",
                                   "Every kept checkpoint: accuracy against epochs, seconds, forward-units");
    o->source.add(*c);
    c->remove_option(c->get_option("--checkpoint"));
    c->add_option("--judge", o->judge, "knn or linear")
        ->check(CLI::IsMember({"knn", "linear"}))
        ->capture_default_str();
    c->add_option("--protocol", o->protocol, "Of the judge: paper, dino, moco (knn); honest, paper (linear)");
    c->add_option("--plot", o->text, "PNG of the curve (default: beside the curve in the run folder)");
    c->add_option("--k", o->judging.k, "Neighbours (default: the protocol's)");
    c->add_option("--probe-epochs", o->judging.epochs, "Epochs of the probe")->capture_default_str();
    c->add_option("--rates", o->judging.rates, "Learning rates of the probe")->capture_default_str();
    c->add_flag("--standardise", o->judging.standardise, "Scale features to mean 0, deviation 1");
    c->add_option("--seed", o->judging.seed, "Of splits, batches and first weights")->capture_default_str();
    c->callback([o] {
      if (!o->protocol.empty())
        (o->judge == "knn" ? o->judging.knn_protocol : o->judging.linear_protocol) = o->protocol;
      run_curve(o->source, o->judging, o->judge, o->text);
    });
  }
  {
    struct Embed : Options {
      std::string out, what = "features", split = "all";
      bool csv = false;
    };
    auto o = std::make_shared<Embed>();
    auto* c = app.add_subcommand("embed", "Write features of images as a NumPy array");
    o->source.add(*c);
    c->add_option("--out", o->out, "File that ends in .npy")->required();
    c->add_option("--what", o->what, "features (before the head) or projection")
        ->check(CLI::IsMember({"features", "projection"}))
        ->capture_default_str();
    c->add_option("--split", o->split, "train, test or all")
        ->check(CLI::IsMember({"train", "test", "all"}))
        ->capture_default_str();
    c->add_flag("--csv", o->csv, "Also write file, label and features as CSV");
    c->callback([o] { run_embed(o->source, o->out, o->what, o->split, o->csv); });
  }
  {
    struct MapOptions : Options {
      Map map;
    };
    auto o = std::make_shared<MapOptions>();
    auto* c = app.add_subcommand("map", "Picture of the features in two dimensions, coloured by label");
    o->source.add(*c);
    c->add_option("--out", o->map.out, "PNG to write")->required();
    c->add_option("--method", o->map.method, "pca, tsne or both")
        ->check(CLI::IsMember({"pca", "tsne", "both"}))
        ->capture_default_str();
    c->add_option("--points", o->map.points, "Images on the map, class-balanced")
        ->check(CLI::Range(4, 5000))
        ->capture_default_str();
    c->add_option("--split", o->map.split, "train, test or all")
        ->check(CLI::IsMember({"train", "test", "all"}))
        ->capture_default_str();
    c->add_option("--perplexity", o->map.perplexity, "Of t-SNE")
        ->check(CLI::Range(1.0, 1000.0))
        ->capture_default_str();
    c->add_option("--iterations", o->map.iterations, "Of t-SNE")
        ->check(CLI::Range(3, 100000))
        ->capture_default_str();
    c->add_option("--seed", o->map.seed, "Of the choice of images")->capture_default_str();
    c->callback([o] { run_map(o->source, o->map); });
  }
  {
    auto o = std::make_shared<Compare>();
    auto* c = app.add_subcommand("compare", "Relative efficiency of runs, from their curves");
    c->add_option("RUN", o->runs, "Run folders with a curve (ebclr eval curve RUN)")->required();
    c->add_option("--reference", o->reference,
                  "Run that the others are measured against (default: the first EBCLR run)");
    c->add_option("--judge", o->judge, "knn or linear")
        ->check(CLI::IsMember({"knn", "linear"}))
        ->capture_default_str();
    c->add_option("--protocol", o->protocol, "Of the judge (default: paper for knn, honest for linear)");
    c->add_option("--plot", o->plot, "PNG of the curves against epochs, seconds and forward-units");
    c->add_flag("--json", o->json, "Print JSON instead of a table");
    c->callback([o] { run_compare(*o); });
  }
}

}  // namespace ebclr::cli
