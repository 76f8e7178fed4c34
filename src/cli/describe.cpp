// Runs while building: writes what is generated from the command definitions (answers of the launcher, manual
// pages, completion) into a folder.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/app.h"
#include "data/catalog.h"
#include "manual/command_tree.h"
#include "run/config.h"
#include "run/shipped.h"
#include "study/shipped_studies.h"

namespace ebclr::cli {
namespace {
namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error(path.string() + ": cannot be written");
}

/// What the program prints for these arguments, which must ask for help or the version.
std::string printed(const std::vector<std::string>& arguments) {
  CLI::App app;
  add_commands(app);
  std::ostringstream out, err;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& e) {
    if (app.exit(e, out, err) == 0) return out.str();
  }
  throw std::runtime_error("no answer to: " + fmt::format("{}", fmt::join(arguments, " ")));
}

void add_answers(const manual::Command& c, std::string& table) {
  std::vector<std::string> arguments(c.path.begin() + 1, c.path.end());
  arguments.emplace_back("--help");
  table += fmt::format("    {{\"{}\", R\"text({})text\"}},\n", fmt::join(arguments, " "), printed(arguments));
  for (const auto& below : c.commands) add_answers(below, table);
}

manual::Values known_values() {
  manual::Values values;
  for (const auto& c : run::shipped_configs()) values["--config"].push_back(c.name);
  for (const auto& f : run::fields()) values["--set"].push_back(f.key + "=");
  for (const auto& s : data::catalog({})) values["--data"].push_back(s.name);
  values["--to"] = values["--against"] = values["data get NAME"] = values["--data"];
  values["config list NAME"] = values["--config"];
  for (const auto& s : study::shipped_studies()) values["reproduce STUDY"].push_back(s.name);
  values["--device"] = {"auto", "cpu", "cuda"};
  values["--engine"] = {"auto", "native", "torch", "avx2", "avx512", "amx"};
  values["--checkpoint"] = {"last"};
  return values;
}

void describe(const fs::path& folder) {
  CLI::App app;
  add_commands(app);
  const auto root = manual::command_tree(app);
  std::string table = fmt::format("    {{\"--version\", R\"text({})text\"}},\n", printed({"--version"}));
  add_answers(root, table);
  write(folder / "answers.cpp",
        "#include \"launcher/answers.h\"\n\nnamespace ebclr::launcher {\n\nconst Answer kAnswers[] = {\n" +
            table + "    {nullptr, nullptr}};\n\n}  // namespace ebclr::launcher\n");
  for (const auto& [name, text] : manual::manual_pages(root, EBCLR_VERSION))
    write(folder / "man" / name, text);
  const auto values = known_values();
  write(folder / "completion/ebclr.bash", manual::bash_completion(root, values));
  write(folder / "completion/_ebclr", manual::zsh_completion(root, values));
  write(folder / "completion/ebclr.fish", manual::fish_completion(root, values));
}

}  // namespace
}  // namespace ebclr::cli

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: ebclr_describe FOLDER\n");
    return 2;
  }
  try {
    ebclr::cli::describe(argv[1]);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "ebclr_describe: {}\n", e.what());
    return 1;
  }
}
