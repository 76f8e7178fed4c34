// The program: registers the commands and turns errors into one line and an exit code.

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "cli/bench_command.h"
#include "cli/config_command.h"
#include "cli/data_command.h"
#include "cli/eval_command.h"
#include "cli/fid_command.h"
#include "cli/import_command.h"
#include "cli/plot_command.h"
#include "cli/report_command.h"
#include "cli/reproduce_command.h"
#include "cli/sample_command.h"
#include "cli/train_command.h"
#include "cli/watch_command.h"
#include "core/error.h"

namespace {

int fail(int code, const std::string& text) {
  std::fflush(stdout);
  if (!text.empty()) fmt::print(stderr, "ebclr: {}\n", text.substr(0, text.find('\n')));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ebclr;
  CLI::App app("ebclr: visual representations without labels by Energy-Based Contrastive Learning");
  app.name("ebclr");
  app.set_version_flag("--version", std::string("ebclr ") + EBCLR_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  cli::add_data_commands(app);
  cli::add_config_commands(app);
  cli::add_train_command(app);
  cli::add_watch_command(app);
  cli::add_sample_commands(app);
  cli::add_eval_commands(app);
  cli::add_embed_command(app);
  cli::add_map_command(app);
  cli::add_compare_command(app);
  cli::add_fid_command(app);
  cli::add_plot_command(app);
  cli::add_report_command(app);
  cli::add_import_command(app);
  cli::add_reproduce_commands(app);
  cli::add_bench_commands(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(2, fmt::format("{}; `ebclr --help` lists the commands", e.what()));
  } catch (const core::Error& e) {
    if (e.code() == core::ExitCode::kInterrupted) return static_cast<int>(e.code());
    return fail(static_cast<int>(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory; lower train.batch_size, buffer.size or --limit");
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    if (text.find("not enough memory") != std::string::npos ||
        text.find("out of memory") != std::string::npos)
      return fail(1, "out of memory; lower train.batch_size, buffer.size or --limit");
    return fail(1, "[libtorch] " + text);
  } catch (const std::exception& e) {
    return fail(1, fmt::format("unexpected failure: {}", e.what()));
  }
}
