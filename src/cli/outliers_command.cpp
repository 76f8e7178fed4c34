#include "cli/outliers_command.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/runtime.h"
#include "core/csv.h"
#include "core/files.h"
#include "core/text.h"
#include "index/build.h"
#include "index/outliers.h"
#include "index/pages.h"
#include "plot/plot.h"

namespace ebclr::cli {
namespace {

struct OutliersArgs {
  std::string index, by = index::OutlierOptions{}.by, out, page, sheet;
  int64_t top = 24, k = index::OutlierOptions{}.k;
  bool json = false;
  RuntimeOptions runtime;
};

void run_outliers(OutliersArgs a) {
  if (!a.sheet.empty()) plot::check_png_name(a.sheet);
  for (const auto& file : {a.out, a.page, a.sheet}) core::check_writable(file, "outliers");
  apply(a.runtime);
  const auto idx = index::Index::open(a.index);
  if (a.by == "auto") a.by = index::choose_score(idx.size(), idx.info().dim, idx.info().has_energies);
  const auto scores = index::outlier_scores(idx, {.by = a.by, .k = a.k});
  const auto order = index::strangest(scores);
  const auto* all = order.data_ptr<int64_t>();
  const std::vector<int64_t> rows(all, all + std::min(a.top, idx.size()));
  const auto score = [&](int64_t row) { return scores[row].item<double>(); };
  if (!a.out.empty()) {
    std::string csv = "rank,score,energy,path\n";
    for (int64_t i = 0; i < idx.size(); ++i)
      csv += core::csv_line({std::to_string(i + 1), fmt::format("{}", score(all[i])),
                             fmt::format("{}", idx.record(all[i]).energy), std::string(idx.path(all[i]))});
    core::write_atomically(a.out, csv, "outliers");
  }
  if (!a.page.empty())
    core::write_atomically(a.page, index::outliers_page(idx, rows, scores, a.by), "outliers");
  if (!a.sheet.empty()) {
    std::vector<std::string> captions;
    for (const auto r : rows) captions.push_back(fmt::format("{:.3g} {}", score(r), idx.path(r)));
    plot::write_png(a.sheet, plot::image_grid(index::thumbnails(idx, rows), 6, 1, captions,
                                              fmt::format("strangest of {} by {}", idx.size(), a.by)));
  }
  if (a.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto r : rows)
      list.push_back(
          {{"path", std::string(idx.path(r))}, {"score", score(r)}, {"energy", idx.record(r).energy}});
    fmt::print("{}\n", nlohmann::ordered_json{{"by", a.by}, {"images", idx.size()}, {"strangest", list}}.dump(
                           2, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("strangest of {} images by {}:\n", idx.size(), a.by);
  for (const auto r : rows) fmt::print("{:10.4g}  {}\n", score(r), core::one_line(idx.path(r)));
  for (const auto r : index::vanished(idx, rows))
    fmt::print(stderr, "note: {} is gone since it was indexed\n", core::one_line(idx.path(r)));
  for (const auto& file : {a.out, a.page, a.sheet})
    if (!file.empty()) fmt::print("wrote {}\n", file);
}

}  // namespace

void add_outliers_command(CLI::App& app) {
  auto a = std::make_shared<OutliersArgs>();
  auto* c = app.add_subcommand("outliers", "Images of an index that do not belong, strangest first");
  c->add_option("INDEX", a->index, "Index file")->required();
  c->add_option("--by", a->by, "energy, neighbours, mahalanobis, combined, or auto: what told strangers best")
      ->check(CLI::IsMember({"auto", "energy", "neighbours", "mahalanobis", "combined"}))
      ->capture_default_str();
  c->add_option("--top", a->top, "How many are shown")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str();
  c->add_option("-k", a->k, "neighbours: which one counts")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  c->add_option("--out", a->out, "All of them as CSV, strangest first");
  c->add_option("--page", a->page, "HTML page to look at");
  c->add_option("--sheet", a->sheet, "PNG of the strangest");
  c->add_flag("--json", a->json, "As JSON");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { run_outliers(*a); });
}

}  // namespace ebclr::cli
