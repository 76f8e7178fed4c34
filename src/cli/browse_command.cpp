#include "cli/browse_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "browse/site.h"
#include "cli/runtime.h"
#include "core/error.h"
#include "core/text.h"
#include "index/outliers.h"

namespace ebclr::cli {
namespace {

struct BrowseArgs {
  std::string index, classes, host = "127.0.0.1", token, by = index::OutlierOptions{}.by;
  int port = 8091;
  RuntimeOptions runtime;
};

void run_browse(const BrowseArgs& a) {
  apply(a.runtime);
  browse::SiteOptions options{.classes = a.classes, .strangers_by = a.by};
  options.server.host = a.host;
  options.server.port = a.port;
  options.server.token = a.token == "auto" ? web::make_token() : a.token;
  options.progress = [shown = ::isatty(STDERR_FILENO) != 0](double share) {
    if (interrupted()) throw core::Error(core::ExitCode::kInterrupted, "browse", "interrupted");
    if (shown) fmt::print(stderr, "\rmap {:3.0f} %{}", 100 * share, share >= 1 ? "\n" : "");
  };
  catch_interrupts();
  browse::Site site(index::Index::open(a.index), options);
  site.start();
  if (const auto caution = site.caution(); !caution.empty()) fmt::print(stderr, "warning: {}\n", caution);
  if (const auto note = site.note(); !note.empty()) fmt::print(stderr, "note: {}\n", core::one_line(note));
  fmt::print("{}  (Ctrl-C ends)\n", site.address());
  std::fflush(stdout);
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

void add_browse_command(CLI::App& app) {
  auto a = std::make_shared<BrowseArgs>();
  auto* c =
      app.add_subcommand("browse", "A page to look at an index: map, search by click, strangers, copies");
  c->add_option("INDEX", a->index, "Index file")->required();
  c->add_option("--classes", a->classes, "Predictions of `ebclr classify`, to colour the map");
  c->add_option("--by", a->by, "Strangers by: energy, neighbours, mahalanobis, combined or auto")
      ->check(CLI::IsMember({"auto", "energy", "neighbours", "mahalanobis", "combined"}))
      ->capture_default_str();
  c->add_option("--port", a->port, "Port; 0: any")->check(CLI::Range(0, 65535))->capture_default_str();
  c->add_option("--host", a->host, "Address to listen on; others than this machine's own need a token")
      ->capture_default_str();
  c->add_option("--token", a->token, "Who does not know it gets nothing; auto: a new one");
  add_runtime_options(*c, a->runtime);
  c->callback([a] { run_browse(*a); });
}

}  // namespace ebclr::cli
