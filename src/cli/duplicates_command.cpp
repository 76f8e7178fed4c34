#include "cli/duplicates_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "core/csv.h"
#include "core/files.h"
#include "core/text.h"
#include "index/build.h"
#include "index/duplicates.h"
#include "index/pages.h"

namespace ebclr::cli {
namespace {

struct DuplicatesArgs {
  std::string index, out, page;
  double similarity = index::DuplicateOptions{}.similarity, agreement = index::DuplicateOptions{}.agreement;
  bool json = false;
  RuntimeOptions runtime;
};

void run_duplicates(const DuplicatesArgs& a) {
  for (const auto& file : {a.out, a.page}) core::check_writable(file, "duplicates");
  apply(a.runtime);
  const auto idx = index::Index::open(a.index);
  const auto groups = index::find_duplicates(idx, {.similarity = a.similarity, .agreement = a.agreement});
  std::string csv = "group,keep,same_bytes,bytes,path\n";
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int64_t copies = 0, exact = 0;
  double spare = 0;
  std::vector<int64_t> rows;
  for (size_t g = 0; g < groups.size(); ++g) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (size_t i = 0; i < groups[g].rows.size(); ++i) {
      const auto row = groups[g].rows[i];
      const std::string path(idx.path(row));
      rows.push_back(row);
      csv += core::csv_line({std::to_string(g + 1), i == 0 ? "1" : "0", groups[g].exact[i] ? "1" : "0",
                             std::to_string(idx.record(row).bytes), path});
      files.push_back(
          {{"path", path}, {"bytes", idx.record(row).bytes}, {"same_bytes", bool{groups[g].exact[i]}}});
      if (i == 0) continue;
      ++copies;
      exact += groups[g].exact[i];
      spare += static_cast<double>(idx.record(row).bytes);
    }
    list.push_back({{"agreement", groups[g].agreement}, {"files", files}});
  }
  if (!a.out.empty()) core::write_atomically(a.out, csv, "duplicates");
  if (!a.page.empty()) core::write_atomically(a.page, index::duplicates_page(idx, groups, 500), "duplicates");
  if (a.json) {
    fmt::print("{}\n",
               nlohmann::ordered_json{{"images", idx.size()}, {"copies", copies}, {"groups", list}}.dump(
                   2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  for (size_t g = 0; g < std::min<size_t>(groups.size(), 20); ++g) {
    fmt::print("group {}\n", g + 1);
    for (size_t i = 0; i < groups[g].rows.size(); ++i)
      fmt::print("  {}{}\n", core::one_line(idx.path(groups[g].rows[i])),
                 i == 0               ? ""
                 : groups[g].exact[i] ? "  (same bytes)"
                                      : "  (near copy)");
  }
  if (groups.size() > 20) fmt::print("... {} more groups: --out list.csv has all\n", groups.size() - 20);
  fmt::print(
      "{} of {} images are copies of another ({} byte for byte, {} nearly), {} in all; nothing was deleted\n",
      copies, idx.size(), exact, copies - exact, core::human_bytes(spare));
  for (const auto row : index::vanished(idx, rows))
    fmt::print(stderr, "note: {} is gone since it was indexed\n", core::one_line(idx.path(row)));
  if (!a.out.empty()) fmt::print("wrote {}\n", a.out);
  if (!a.page.empty()) fmt::print("wrote {}\n", a.page);
}

}  // namespace

void add_duplicates_command(CLI::App& app) {
  auto a = std::make_shared<DuplicatesArgs>();
  auto* c =
      app.add_subcommand("duplicates", "Groups of images that are copies of each other; deletes nothing");
  c->add_option("INDEX", a->index, "Index file")->required();
  c->add_option("--out", a->out, "List as CSV");
  c->add_option("--page", a->page, "HTML page to look at");
  c->add_option("--similarity", a->similarity, "Features less alike than this are no copies")
      ->check(CLI::Range(-1.0, 1.0))
      ->capture_default_str();
  c->add_option("--agreement", a->agreement,
                "Pictures that correlate less than this, best aligned, are no copies")
      ->check(CLI::Range(-1.0, 1.0))
      ->capture_default_str();
  c->add_flag("--json", a->json, "As JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { run_duplicates(*a); });
}

}  // namespace ebclr::cli
