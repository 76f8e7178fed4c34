// The program: reads the command line and turns errors into one line and an exit code.

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "cli/app.h"
#include "core/error.h"
#include "core/text.h"

namespace {

int fail(int code, const std::string& text) {
  std::fflush(stdout);
  if (!text.empty()) fmt::print(stderr, "ebclr: {}\n", core::one_line(text.substr(0, text.find('\n'))));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ebclr;
  CLI::App app;
  cli::add_commands(app);
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
    if (core::says_out_of_memory(text))
      return fail(1, "out of memory; lower train.batch_size, buffer.size or --limit");
    return fail(1, "[libtorch] " + text);
  } catch (const std::exception& e) {
    return fail(1, fmt::format("unexpected failure: {}", e.what()));
  }
}
