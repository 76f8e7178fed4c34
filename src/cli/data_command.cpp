#include "cli/data_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/data_options.h"
#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "data/catalog.h"
#include "data/fetch.h"
#include "data/views.h"
#include "image/formats.h"
#include "plot/plot.h"

namespace ebclr::cli {

namespace {

constexpr std::string_view kDataComponent = "data";

// What to load: a set by name or a folder, and the options that every command has.
struct Source : DataOptions {
  uint64_t seed = 0;

  void add(CLI::App& command) {
    command.add_option("NAME", data, "A set by name (see `ebclr data list`) or a folder of images")
        ->required();
    add_data_options(command, *this, /*with_data=*/false);
    command.add_option("--seed", seed, "Seed of subsets, splits and shapes")->capture_default_str();
  }
  data::SourceOptions options() const {
    return apply(*this, {.source = data, .grayscale = grayscale, .seed = seed});
  }
  data::TrainTest load(bool quiet) const { return data::load(options(), load_context(0, quiet)); }
};

void print_notes(const data::TrainTest& d) {
  for (const auto* s : {&d.train, &d.test})
    for (const auto& note : s->notes) fmt::print("note: {}\n", note);
}

void list(const std::filesystem::path& root, bool json) {
  const auto entries = data::catalog(root);
  if (json) {
    auto out = nlohmann::json::array();
    for (const auto& e : entries)
      out.push_back({{"name", e.name},
                     {"description", e.description},
                     {"present", e.present},
                     {"folder", e.folder.string()}});
    print_answer(out);
    return;
  }
  for (const auto& e : entries) {
    const std::string state =
        e.folder.empty() ? "built in"
        : e.present      ? "in " + e.folder.string()
                         : fmt::format("absent; ebclr data get {}", e.name.substr(0, e.name.find('-')));
    fmt::print("{:<16} {}\n{:<16} {}\n", e.name, e.description, "", state);
  }
  fmt::print("{:<16} {}\n", "FOLDER",
             fmt::format("any folder of pictures ({}), one sub-folder per class or flat",
                         image::readable_formats()));
}

// Prints each step once; on a terminal the bytes of a download run along.
class ProgressPrinter {
 public:
  void operator()(const data::FetchProgress& p) {
    const bool terminal = ::isatty(STDERR_FILENO) == 1;
    if (p.step != step_) {
      finish();
      step_ = p.step;
      fmt::print(stderr, "  {}", p.step);
      if (!terminal) fmt::print(stderr, "\n");
    }
    const auto now = std::chrono::steady_clock::now();
    if (terminal && p.done > 0 && (now - shown_ > std::chrono::milliseconds(200) || p.done == p.total)) {
      shown_ = now;
      fmt::print(stderr, "\r  {}: {}{}   ", p.step, core::human_bytes(static_cast<double>(p.done)),
                 p.total > 0 ? fmt::format(" of {}", core::human_bytes(static_cast<double>(p.total))) : "");
    }
    std::fflush(stderr);
  }
  void finish() {
    if (!step_.empty() && ::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\n");
    step_.clear();
  }

 private:
  std::string step_;
  std::chrono::steady_clock::time_point shown_;
};

void get(const std::vector<std::string>& names, data::FetchOptions options) {
  for (const auto& name : names) {
    ProgressPrinter printer;
    options.progress = [&](const data::FetchProgress& p) { printer(p); };
    const auto start = std::chrono::steady_clock::now();
    const auto result = data::fetch(name, options);
    printer.finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const auto& p : result.problems) fmt::print("not from {}\n", p);
    if (result.source == "present") {
      fmt::print("{}: already in {}, sums are right\n", name, result.folder.string());
    } else {
      fmt::print("{}: in {} (source: {}, {}; sums are right)\n", name, result.folder.string(), result.source,
                 core::human_seconds(seconds));
    }
  }
}

struct ShowOptions {
  Source source;
  data::ViewOptions views;
  std::string out, split = "train", scope = "image";
  int64_t count = 10, view_count = 8;
  uint64_t epoch = 0;
};

std::string class_of(const data::ImageSet& set, int64_t image) {
  const auto label = set.labels[image].item<int64_t>();
  return label == data::kNoLabel ? "" : set.class_names[label];
}

// The class, the file, or both.
std::string name_of(const data::ImageSet& set, int64_t image) {
  const auto file = set.files.empty()
                        ? ""
                        : std::filesystem::path(set.files[static_cast<size_t>(image)]).filename().string();
  const auto label = class_of(set, image);
  return label.empty() ? file : file.empty() ? label : label + ": " + file;
}

void show(ShowOptions o) {
  if (o.count < 1 || o.count > 200)
    core::usage_error(kDataComponent, fmt::format("--count is {}; expected 1 to 200", o.count));
  if (o.view_count < 0 || o.view_count > 64)
    core::usage_error(kDataComponent, fmt::format("--views is {}; expected 0 to 64", o.view_count));
  plot::check_png_name(o.out);
  const auto both = o.source.load(false);
  const auto& set = o.split == "test" ? both.test : both.train;
  if (set.size() == 0) core::usage_error(kDataComponent, fmt::format("the {} split has no images", o.split));
  o.views.scope = o.scope == "batch" ? data::Scope::kBatch : data::Scope::kImage;

  // A balanced draw, class after class.
  auto shown = data::limit(set, o.count, o.source.seed);
  shown = data::select(shown, std::get<1>(torch::sort(shown.labels, true, 0, false)));
  const int scale = static_cast<int>(std::clamp<int64_t>(96 / shown.height(), 1, 4));
  std::vector<std::string> names;
  for (int64_t i = 0; i < shown.size(); ++i) names.push_back(name_of(shown, i));
  const std::string about =
      fmt::format("{} ({}), {} x {} pixels", set.name, set.split, set.width(), set.height());
  plot::Image sheet;
  if (o.view_count == 0) {
    // Without views the images themselves fill the sheet.
    sheet = plot::image_grid(shown.pixels, {.columns = static_cast<int>(std::ceil(std::sqrt(shown.size()))),
                                            .scale = scale,
                                            .captions = names,
                                            .title = about});
  } else {
    const data::ViewMaker maker(o.views, shown);
    std::vector<torch::Tensor> columns = {data::to_unit_range(shown.pixels)};
    std::vector<std::string> heads = {"image"};
    for (int64_t v = 0; v < o.view_count; ++v) {
      columns.push_back(data::make_views(maker, shown, torch::arange(shown.size()), o.source.seed, o.epoch,
                                         static_cast<uint64_t>(v), 0));
      heads.push_back(fmt::format("view {}", v + 1));
    }
    // [images, 1 + views, C, H, W] row by row
    sheet = plot::image_grid(torch::stack(columns, 1).flatten(0, 1),
                             {.columns = static_cast<int>(o.view_count) + 1,
                              .scale = scale,
                              .column_heads = heads,
                              .row_heads = names,
                              .title = about + ": images and the views that training sees"});
  }
  plot::write_png(o.out, sheet);
  print_notes(both);
  fmt::print("{}: {} images of {} ({}) with {} views each, {} x {} pixels\n", o.out, shown.size(), set.name,
             set.split, o.view_count, sheet.width, sheet.height);
}

nlohmann::json stats_of(const data::ImageSet& set) {
  nlohmann::json out = {{"images", set.size()}};
  if (set.size() == 0) return out;
  out["channels"] = set.channels();
  out["height"] = set.height();
  out["width"] = set.width();
  out["bytes"] = set.pixels.numel();
  out["unlabelled"] = (set.labels == data::kNoLabel).sum().item<int64_t>();
  auto counts = nlohmann::json::object();
  for (int64_t c = 0; c < set.classes(); ++c)
    counts[set.class_names[c]] = (set.labels == c).sum().item<int64_t>();
  out["classes"] = counts;
  // Sums in double over parts, so that a large set is never turned into floats as a whole.
  auto sum = torch::zeros({set.channels()}, torch::kFloat64), squares = sum.clone();
  for (int64_t at = 0; at < set.size(); at += 1000) {
    const auto part = set.pixels.slice(0, at, std::min(at + 1000, set.size())).to(torch::kFloat64) / 255;
    sum += part.sum({0, 2, 3});
    squares += part.square().sum({0, 2, 3});
  }
  const auto n = static_cast<double>(set.size() * set.height() * set.width());
  const auto mean = sum / n, deviation = (squares / n - mean.square()).clamp_min(0).sqrt();
  for (int64_t c = 0; c < set.channels(); ++c) {
    out["mean"].push_back(mean[c].item<double>());
    out["std"].push_back(deviation[c].item<double>());
  }
  return out;
}

void stats(const Source& source, bool json) {
  const auto start = std::chrono::steady_clock::now();
  const auto both = source.load(json);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  nlohmann::json out = {{"name", both.train.name}, {"load_seconds", seconds}, {"notes", both.train.notes}};
  out["unreadable"] = nlohmann::json::array();
  for (const auto& p : both.problems) out["unreadable"].push_back({{"file", p.path}, {"reason", p.reason}});
  if (!both.list.empty()) out["fingerprint"] = both.list.fingerprint();
  out["train"] = stats_of(both.train);
  out["test"] = stats_of(both.test);
  if (json) {
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{}: loaded in {:.2f} s\n", both.train.name, seconds);
  for (const char* split : {"train", "test"}) {
    const auto& s = out[split];
    fmt::print("{:<6} {} images", split, s["images"].get<int64_t>());
    if (!s.contains("channels")) {
      fmt::print("\n");
      continue;
    }
    fmt::print(" of {} x {} x {}, {}", s["channels"].get<int64_t>(), s["height"].get<int64_t>(),
               s["width"].get<int64_t>(), core::human_bytes(s["bytes"].get<double>()));
    if (s["unlabelled"].get<int64_t>() > 0)
      fmt::print(", {} without a label", s["unlabelled"].get<int64_t>());
    fmt::print("\n       mean");
    for (double v : s["mean"]) fmt::print(" {:.4f}", v);
    fmt::print(", std");
    for (double v : s["std"]) fmt::print(" {:.4f}", v);
    fmt::print(" (in [0, 1])\n");
  }
  const auto& set = both.train;
  if (set.classes() > 0) {
    fmt::print("classes (train, test):\n");
    for (const auto& name : set.class_names)
      fmt::print("  {:<32} {:>7} {:>7}\n", name, out["train"]["classes"].value(name, int64_t{0}),
                 out["test"].contains("classes") ? out["test"]["classes"].value(name, int64_t{0}) : 0);
  }
  print_notes(both);
  for (const auto& p : both.problems) fmt::print("  {}: {}\n", p.path, p.reason);
}

}  // namespace

void add_data_commands(CLI::App& app) {
  auto* group = app.add_subcommand("data", "Data sets: list, get, show, stats");
  group->require_subcommand(1);

  {
    struct Options {
      std::filesystem::path root;
      bool json = false;
    };
    auto o = std::make_shared<Options>();
    auto* command = group->add_subcommand("list", "The known sets and whether they are there");
    command->add_option("--data-root", o->root, "Where sets are kept");
    command->add_flag("--json", o->json, "Print JSON");
    command->callback([o] { list(o->root, o->json); });
  }
  {
    struct Options {
      std::vector<std::string> names;
      data::FetchOptions fetch;
    };
    auto o = std::make_shared<Options>();
    auto* command = group->add_subcommand("get", "Obtain sets: mnist, fmnist, cifar10, cifar100");
    command->add_option("NAME", o->names, "One or more sets")->required();
    command->add_option("--data-root", o->fetch.data_root, "Where sets are kept");
    command->add_option("--source", o->fetch.source, "auto, debian, official or mirror")
        ->capture_default_str();
    command->add_option("--base-url", o->fetch.base_url, "An https folder instead of the official address");
    command->add_option("--ca-file", o->fetch.ca_file, "Certificates to trust (PEM) instead of the system's");
    command->callback([o] {
      // Who names an address means that one: no way around it.
      if (!o->fetch.base_url.empty() && o->fetch.source == "auto") o->fetch.source = "official";
      if (!o->fetch.base_url.empty() && o->fetch.source != "official")
        core::usage_error("data",
                          fmt::format("--base-url stands for the official address; it does not go with "
                                      "--source {}",
                                      o->fetch.source));
      get(o->names, o->fetch);
    });
  }
  {
    auto o = std::make_shared<ShowOptions>();
    auto* command = group->add_subcommand("show", "A sheet of images beside their augmented views");
    o->source.add(*command);
    command->add_option("--out", o->out, "The PNG to write")->required();
    command->add_option("--views", o->view_count, "Views per image")->capture_default_str();
    command->add_option("--count", o->count, "Images")->capture_default_str();
    command->add_option("--split", o->split, "train or test")
        ->check(CLI::IsMember({"train", "test"}))
        ->capture_default_str();
    command->add_option("--epoch", o->epoch, "Epoch whose views are shown")->capture_default_str();
    command->add_option("--noise", o->views.noise, "Standard deviation in [0, 1] scale")
        ->capture_default_str();
    command->add_option("--blur", o->views.blur, "Probability of blur")->capture_default_str();
    command->add_option("--jitter", o->views.jitter, "Probability of colour jitter")->capture_default_str();
    command->add_option("--crop-min", o->views.crop_min, "Smallest crop as a part of the area")
        ->capture_default_str();
    command->add_option("--scope", o->scope, "image or batch")
        ->check(CLI::IsMember({"image", "batch"}))
        ->capture_default_str();
    command->callback([o] { show(*o); });
  }
  {
    struct Options {
      Source source;
      bool json = false;
    };
    auto o = std::make_shared<Options>();
    auto* command = group->add_subcommand("stats", "Sizes, classes, means and deviations");
    o->source.add(*command);
    command->add_flag("--json", o->json, "Print JSON");
    command->callback([o] { stats(o->source, o->json); });
  }
}

}  // namespace ebclr::cli
