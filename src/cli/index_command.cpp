#include "cli/index_command.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/runtime.h"
#include "cli/say.h"
#include "core/error.h"
#include "core/files.h"
#include "core/text.h"
#include "index/build.h"
#include "index/pages.h"
#include "index/search.h"
#include "plot/plot.h"

namespace ebclr::cli {
namespace {

namespace fs = std::filesystem;

struct IndexArgs {
  std::string folder, data, out, checkpoint = "last", data_root;
  int64_t image_size = 0, references = index::LookerOptions{}.references;
  bool references_named = false, fresh = false, json = false;
  RuntimeOptions runtime;
};

void name_some(const std::string& what, const std::vector<std::string>& lines) {
  constexpr size_t kNamed = 10;
  for (size_t i = 0; i < std::min(lines.size(), kNamed); ++i)
    say("note: {}{}\n", what, core::one_line(lines[i]));
  if (lines.size() > kNamed) say("note: and {} more\n", lines.size() - kNamed);
}

void print_report(const IndexArgs& a, const index::BuildReport& r) {
  if (a.json) {
    auto unreadable = nlohmann::ordered_json::array();
    for (const auto& p : r.unreadable) unreadable.push_back({{"file", p.path}, {"reason", p.reason}});
    print_answer(nlohmann::ordered_json{{"out", a.out},
                                        {"images", r.kept + r.added},
                                        {"kept", r.kept},
                                        {"added", r.added},
                                        {"changed", r.changed},
                                        {"removed", r.removed},
                                        {"unreadable", unreadable},
                                        {"unseen", r.unseen},
                                        {"energies", r.energies},
                                        {"graph", r.graph},
                                        {"interrupted", r.stopped},
                                        {"not_looked_at", r.unreached}});
    return;
  }
  std::vector<std::string> left_out;
  for (const auto& p : r.unreadable) left_out.push_back(index::line(p));
  name_some("left out: ", left_out);
  name_some("", r.unseen);
  if (!r.written) return;
  fmt::print("{}: {} images ({} kept, {} added, {} of them changed, {} removed, {} unreadable){}\n", a.out,
             r.kept + r.added, r.kept, r.added, r.changed, r.removed, r.unreadable.size(),
             r.graph ? ", with a graph for fast search" : "");
}

std::string text_of_interruption(const IndexArgs& a, const index::BuildReport& r) {
  if (!r.written)
    return fmt::format("interrupted: {} file(s) were not looked at; {}", r.unreached,
                       r.kept > 0 || a.fresh ? "what was there stays as it was" : "there is no index yet");
  return fmt::format(
      "interrupted: {} file(s) were not looked at; what the index had of them stays, the same "
      "command{} goes on",
      r.unreached, a.fresh ? " without --fresh" : "");
}

void make_index(const IndexArgs& a) {
  core::check_writable(a.out, "index");  // before anything takes time
  const auto runtime = apply(a.runtime);
  const auto run = run::Run::open(a.folder);
  std::vector<std::string> notes;
  const auto looker = index::load_looker(run,
                                         {.checkpoint = a.checkpoint,
                                          .image_size = a.image_size,
                                          .references = a.references,
                                          .data_root = a.data_root,
                                          .images = a.data,
                                          .placement = runtime.placement(),
                                          .version = EBCLR_VERSION},
                                         notes);
  for (const auto& n : notes) fmt::print(stderr, "note: {}\n", n);
  protect_work();
  index::BuildOptions options{.fresh = a.fresh, .stop = [] { return interrupted().load(); }};
  if (::isatty(STDERR_FILENO))
    options.progress = [](const std::string& what, double share) {
      say("\r{} {:3.0f} %{}", what, 100 * share, share >= 1 ? "\n" : "");
    };
  const auto r = index::build_index(looker, a.data, a.out, options);
  for (const auto& n : r.notes) say("note: {}\n", core::one_line(n));
  const int64_t wanted = looker.references.defined() ? looker.references.size(0) : a.references;
  if (a.references_named && r.energies && r.references != wanted)
    say("note: --references {} changes nothing: the index keeps the {} that its energies are against; "
        "--fresh "
        "takes others\n",
        a.references, r.references);
  print_report(a, r);
  if (r.stopped) {
    say("{}\n", text_of_interruption(a, r));
    throw core::Error(core::ExitCode::kInterrupted, "index", "interrupted");
  }
}

struct SearchArgs {
  std::string index, run, sheet;
  std::vector<std::string> queries, without;
  int64_t top = 12, effort = 200;
  bool exact = false, json = false;
  RuntimeOptions runtime;
};

void run_search(const SearchArgs& a) {
  if (!a.sheet.empty()) plot::check_png_name(a.sheet);
  core::check_writable(a.sheet, "search");
  const auto runtime = apply(a.runtime);
  const auto idx = index::Index::open(a.index);
  const auto looker = index::load_looker(idx, a.run, runtime.placement());
  const auto query =
      index::combine(index::look_at_queries(looker, a.queries), index::look_at_queries(looker, a.without));
  const auto hits = index::search(idx, query, {.top = a.top, .exact = a.exact, .effort = a.effort}).front();
  std::vector<int64_t> rows;
  for (const auto& h : hits) rows.push_back(h.row);
  const auto gone = index::vanished(idx, rows);
  const auto is_gone = [&](int64_t row) { return std::find(gone.begin(), gone.end(), row) != gone.end(); };
  if (!a.sheet.empty()) {
    std::vector<std::string> captions;
    for (const auto& h : hits) captions.push_back(fmt::format("{:.3f} {}", h.similarity, idx.path(h.row)));
    plot::write_png(a.sheet, plot::image_grid(index::thumbnails(idx, rows), 6, 1, captions,
                                              fmt::format("nearest to {}", core::join(a.queries, ", "))));
  }
  if (a.json) {
    nlohmann::ordered_json j = {
        {"queries", a.queries}, {"not", a.without}, {"hits", nlohmann::ordered_json::array()}};
    for (const auto& h : hits)
      j["hits"].push_back({{"path", std::string(idx.path(h.row))},
                           {"similarity", h.similarity},
                           {"energy", idx.record(h.row).energy},
                           {"gone", is_gone(h.row)}});
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  for (const auto& h : hits)
    fmt::print("{:.4f}  {}{}\n", h.similarity, core::one_line(idx.path(h.row)),
               is_gone(h.row) ? "  (gone)" : "");
  for (const auto row : gone) {
    // What a link leads to may only be away: an index keeps it as long as the link is there.
    std::error_code ec;
    const bool link = fs::is_symlink(fs::path(idx.info().folder) / idx.path(row), ec);
    fmt::print(stderr, "note: {} {}; {}: ebclr index {} --data {} --out {}\n", core::one_line(idx.path(row)),
               link ? "leads nowhere now" : "is gone since it was indexed",
               link ? "remove the link and renew" : "renew", command_word(idx.info().run),
               command_word(idx.info().folder), command_word(a.index));
  }
  if (!a.sheet.empty()) fmt::print("wrote {}\n", a.sheet);
}

}  // namespace

void add_index_commands(CLI::App& app) {
  auto a = std::make_shared<IndexArgs>();
  auto* c = app.add_subcommand("index", "Features of a folder of images in one file, to search and sort");
  c->add_option("RUN", a->folder, "Run folder")->required();
  c->add_option("--data", a->data, "Folder of images")->required();
  c->add_option("--out", a->out, "Index to make or to renew: files that did not change are kept")->required();
  c->add_option("--checkpoint", a->checkpoint, "Epoch or last")->capture_default_str();
  c->add_option("--image-size", a->image_size, "Side that images are read at (default: as in training)")
      ->check(CLI::Range(16, 1024));
  auto* references = c->add_option("--references", a->references, "Views that define the energy")
                         ->check(CLI::Range(1, 100000))
                         ->capture_default_str();
  c->add_option("--data-root", a->data_root, "Where named sets are kept");
  c->add_flag("--fresh", a->fresh, "Replace an index that is there");
  c->add_flag("--json", a->json, "Print the outcome as JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a, references] {
    a->references_named = references->count() > 0;
    make_index(*a);
  });

  auto s = std::make_shared<SearchArgs>();
  auto* f = app.add_subcommand("search", "Images of an index that are most like others");
  f->add_option("INDEX", s->index, "Index file")->required();
  f->add_option("QUERY", s->queries, "Image files to look for; several: what they have in common")
      ->required();
  f->add_option("--not", s->without, "Image files to stay away from")->delimiter(',');
  f->add_option("--top", s->top, "How many")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  f->add_option("--run", s->run, "The run that made the index, where it moved");
  f->add_option("--sheet", s->sheet, "Also a PNG of what was found");
  f->add_flag("--exact", s->exact, "Look at every image, even where there is a graph");
  f->add_option("--effort", s->effort, "Candidates kept in the graph: more find more")
      ->check(CLI::Range(int64_t{10}, int64_t{100000}))
      ->capture_default_str();
  f->add_flag("--json", s->json, "As JSON");
  add_runtime_options(*f, s->runtime);
  f->callback([s] { run_search(*s); });
}

}  // namespace ebclr::cli
