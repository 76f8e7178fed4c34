#include "cli/bench_index.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "core/error.h"
#include "data/catalog.h"
#include "density/density.h"
#include "eval/features.h"
#include "index/measure.h"
#include "index/search_bench.h"

namespace ebclr::cli {
namespace {

struct BenchSearchArgs {
  std::string index;
  int64_t count = 1000000, dimensions = 512, queries = 500, effort = 200;
  bool json = false;
  RuntimeOptions runtime;
};

void measure_search(const BenchSearchArgs& a) {
  apply(a.runtime);
  if (!std::filesystem::exists(a.index)) index::make_bench_index(a.index, a.count, a.dimensions, 0, {});
  const auto r = index::bench_search(a.index, a.queries, a.effort);
  if (a.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"bench", "search"},
                                              {"images", r.count},
                                              {"dimensions", r.dim},
                                              {"queries", r.queries},
                                              {"effort", r.effort},
                                              {"open_ms", r.open_ms},
                                              {"query_ms", r.graph_ms},
                                              {"query_ms_99", r.graph_ms_99},
                                              {"exact_ms", r.exact_ms},
                                              {"recall_at_10", r.recall}}
                           .dump(2));
    return;
  }
  fmt::print(
      "{} x {}: opened in {:.1f} ms; one query {:.2f} ms (99 %: {:.2f}), recall@10 {:.4f} with effort {}; "
      "looking at all of them takes {:.0f} ms\n",
      r.count, r.dim, r.open_ms, r.graph_ms, r.graph_ms_99, r.recall, r.effort, r.exact_ms);
}

struct BenchCopiesArgs {
  std::string run, data, scratch;
  int64_t limit = 500;
  index::DuplicateOptions options;
  bool json = false;
  RuntimeOptions runtime;
};

void measure_copies(const BenchCopiesArgs& a) {
  const auto runtime = apply(a.runtime);
  std::vector<std::string> notes;
  const auto looker = index::load_looker(run::Run::open(a.run), {.placement = runtime.placement()}, notes);
  if (std::filesystem::exists(a.scratch) && !std::filesystem::is_empty(a.scratch))
    core::usage_error("bench", fmt::format("{}: is not empty; name a new folder for the copies", a.scratch));
  const auto m = index::measure_duplicates(looker, a.data, a.scratch, a.limit, a.options);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (!a.json)
    fmt::print(
        "{} originals, {} images; pairs that are called copies:\n{:<26} {:>9} {:>7}   found by change ({})\n",
        m.originals, m.images, "", "precision", "recall", fmt::join(m.changes, ", "));
  for (const auto& s : m.scores) {
    list.push_back({{"name", s.name},
                    {"precision", s.precision()},
                    {"recall", s.recall()},
                    {"wrong_pairs", s.wrong},
                    {"recall_by_change", s.recall_by_change}});
    if (!a.json)
      fmt::print("{:<26} {:>9.4f} {:>7.4f}   {:.3f}\n", s.name, s.precision(), s.recall(),
                 fmt::join(s.recall_by_change, " "));
  }
  if (a.json)
    fmt::print("{}\n",
               nlohmann::ordered_json{
                   {"originals", m.originals}, {"images", m.images}, {"changes", m.changes}, {"scores", list}}
                   .dump(2));
}

struct BenchStrangersArgs {
  std::vector<std::string> runs;
  std::string strangers = "shapes";
  int64_t limit = 5000;
  double share = 0.01;
  bool json = false;
  RuntimeOptions runtime;
};

void measure_strangers_of(const BenchStrangersArgs& a) {
  const auto runtime = apply(a.runtime);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& folder : a.runs) {
    const auto run = run::Run::open(folder);
    const auto density = density::load_density(run, {.references = 512, .placement = runtime.placement()});
    const auto load = [&](const std::string& name, int64_t limit) {
      auto source = run.config().data;
      source.source = name;
      source.validation = 0;
      source.limit = source.limit_test = limit;
      auto sets = data::load(source);
      return eval::adapt(sets.test.size() > 0 ? std::move(sets.test) : std::move(sets.train),
                         density.model.encoder->options().channels, density.model.image_shape, true)
          .set;
    };
    const auto own = load(run.config().data.source, a.limit);
    const auto strangers = load(
        a.strangers, std::max<int64_t>(1, static_cast<int64_t>(a.share * static_cast<double>(own.size()))));
    if (!a.json)
      fmt::print("{} ({}): {} images of {}, {} of {}\n{:<10} {:<12} {:>6} {:>12}\n", folder,
                 run.config().method.name, own.size(), own.name, strangers.size(), strangers.name, "features",
                 "by", "AUROC", fmt::format("precision@{}", strangers.size()));
    for (const auto& m : index::measure_strangers(density, own, strangers)) {
      list.push_back({{"run", folder},
                      {"method", run.config().method.name},
                      {"strangers", strangers.name},
                      {"own_images", own.size()},
                      {"stranger_images", strangers.size()},
                      {"features", m.features},
                      {"by", m.by},
                      {"auroc", m.auroc},
                      {"precision_at_k", m.precision}});
      if (!a.json) fmt::print("{:<10} {:<12} {:>6.3f} {:>12.3f}\n", m.features, m.by, m.auroc, m.precision);
    }
  }
  if (a.json) fmt::print("{}\n", list.dump(2));
}

}  // namespace

void add_index_benches(CLI::App& group) {
  auto s = std::make_shared<BenchSearchArgs>();
  auto* c =
      group.add_subcommand("search", "Search in a large index: its graph against looking at everything");
  c->add_option("INDEX", s->index, "Index file; made of made-up features when it is not there")->required();
  c->add_option("--count", s->count, "Images of a made-up one")
      ->check(CLI::Range(int64_t{1000}, int64_t{100000000}))
      ->capture_default_str();
  c->add_option("--dim", s->dimensions, "Dimensions of a made-up one")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  c->add_option("--queries", s->queries, "Queries")
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}))
      ->capture_default_str();
  c->add_option("--effort", s->effort, "Candidates kept in the graph")
      ->check(CLI::Range(int64_t{10}, int64_t{100000}))
      ->capture_default_str();
  c->add_flag("--json", s->json, "Print JSON");
  add_runtime_options(*c, s->runtime);
  c->callback([s] { measure_search(*s); });

  auto d = std::make_shared<BenchCopiesArgs>();
  c = group.add_subcommand("duplicates",
                           "How many copies of known images are found, beside a perceptual hash");
  c->add_option("RUN", d->run, "Run folder")->required();
  c->add_option("--data", d->data, "Folder of images to copy and change")->required();
  c->add_option("--scratch", d->scratch, "New folder for the copies")->required();
  c->add_option("--limit", d->limit, "Images at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  c->add_option("--similarity", d->options.similarity, "As of `ebclr duplicates`")->capture_default_str();
  c->add_option("--agreement", d->options.agreement, "As of `ebclr duplicates`")->capture_default_str();
  c->add_flag("--json", d->json, "Print JSON");
  add_runtime_options(*c, d->runtime);
  c->callback([d] { measure_copies(*d); });

  auto o = std::make_shared<BenchStrangersArgs>();
  c = group.add_subcommand("outliers", "How well strangers among a run's own test images are found");
  c->add_option("RUN", o->runs, "Run folders")->required();
  c->add_option("--strangers", o->strangers, "Set that is mixed in")->capture_default_str();
  c->add_option("--share", o->share, "Of the own images, so many strangers")
      ->check(CLI::Range(0.0001, 1.0))
      ->capture_default_str();
  c->add_option("--limit", o->limit, "Own images at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print JSON");
  add_runtime_options(*c, o->runtime);
  c->callback([o] { measure_strangers_of(*o); });
}

}  // namespace ebclr::cli
