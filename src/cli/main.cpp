// The program: reads the command line and turns errors into one line and an exit code.

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "cli/app.h"
#include "cli/say.h"
#include "core/error.h"
#include "core/text.h"

namespace {

int fail(int code, const std::string& text) {
  std::fflush(stdout);
  if (!text.empty()) ebclr::cli::say("ebclr: {}\n", ebclr::core::one_line(text.substr(0, text.find('\n'))));
  return code;
}

// Started with standard output closed, the next file that is opened would become it, and what is printed
// would land inside.
void hold_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) < 0) return;
}

// What was printed may still wait in memory, and find the disk full.
int finish() {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return 0;
  const int error = errno;
  return fail(1, fmt::format("standard output cannot be written: {}", std::strerror(error)));
}

// The command that the words lead to, as far as they name commands.
const CLI::App* command_of(const CLI::App& app, const std::vector<std::string>& words, size_t& at) {
  const CLI::App* command = &app;
  for (at = 0; at < words.size(); ++at) {
    const auto found =
        command->get_subcommands([&](const CLI::App* c) { return c->get_name() == words[at]; });
    if (found.empty()) break;
    command = found[0];
  }
  return command;
}

// What was probably meant: the nearest command or option to a word that is neither. Empty: no idea.
std::string suggestion(const CLI::App& app, const std::vector<std::string>& words) {
  size_t at = 0;
  const CLI::App* command = command_of(app, words, at);
  std::vector<std::string> options, commands;
  for (const auto* c : command->get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(c->get_name());
  for (const auto* o : command->get_options([](const CLI::Option*) { return true; }))
    for (const auto& name : o->get_lnames()) options.push_back(name);
  if (at < words.size() && !commands.empty() && !words[at].starts_with("-"))
    if (const auto near = ebclr::core::nearest(words[at], commands)) return *near;
  for (; at < words.size(); ++at) {
    const std::string word = words[at].substr(0, words[at].find('='));
    if (!word.starts_with("--")) continue;
    // Without the dashes, which all of them have: they would count as likeness.
    const std::string name = word.substr(2);
    if (std::find(options.begin(), options.end(), name) != options.end()) continue;
    if (const auto near = ebclr::core::nearest(name, options)) return "--" + *near;
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ebclr;
  hold_standard_descriptors();
  CLI::App app;
  cli::add_commands(app);
  try {
    app.parse(argc, argv);
    return finish();
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto meant = suggestion(app, words);
    size_t at = 0;
    const auto* command = command_of(app, words, at);
    const bool group = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
    std::string named;
    for (size_t i = 0; i < at; ++i) named += " " + words[i];
    // CLI11 only says that a command is missing.
    const bool stranger = group && at < words.size() && !words[at].starts_with("-");
    return fail(2, fmt::format("{}; {}`ebclr{} --help` lists the {}",
                               stranger ? fmt::format("there is no command '{}'", words[at]) : e.what(),
                               meant.empty() ? "" : fmt::format("did you mean {}? ", meant), named,
                               group ? "commands" : "options"));
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
  } catch (const std::system_error& e) {  // a full disk behind standard output, no more threads
    return fail(1, e.what());
  } catch (const std::exception& e) {
    return fail(1, fmt::format("unexpected failure: {}", e.what()));
  }
}
