#pragma once
// The commands of a program as data, read from its parser, and what is generated from them: manual pages and
// the completion of shells. Knows no command of ours.

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ebclr::manual {

/// An option or a positional argument.
struct Option {
  std::vector<std::string> names;    ///< "--out", "-o"; empty for a positional
  std::string positional;            ///< its name, e.g. "RUN"
  std::string description, initial;  ///< `initial`: the default as shown, may be empty
  std::vector<std::string> choices;  ///< where only some words are allowed
  bool takes_value = true, required = false, repeatable = false;
};

/// A command and those below it.
struct Command {
  std::vector<std::string> path;  ///< {"ebclr", "data", "get"}
  std::string description;
  std::vector<Option> options;
  std::vector<Command> commands;

  /// "data get"; empty for the root.
  std::string words() const;
};

/// Reads a parser; commands and options without a group are hidden and left out.
Command command_tree(const CLI::App& app);

/// Words that may stand for a value, by option ("--config") or by command and positional ("data get NAME").
using Values = std::map<std::string, std::vector<std::string>>;

/// One page of section 1 for the root and each of its commands: {"ebclr-train.1", roff text}.
std::map<std::string, std::string> manual_pages(const Command& root, const std::string& version);

std::string bash_completion(const Command& root, const Values& values);
std::string zsh_completion(const Command& root, const Values& values);
std::string fish_completion(const Command& root, const Values& values);

}  // namespace ebclr::manual
