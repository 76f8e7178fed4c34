#include "manual/command_tree.h"

#include <CLI/CLI.hpp>

namespace ebclr::manual {
namespace {

/// The words of CLI11's "TEXT:{a,b,c}".
std::vector<std::string> choices_of(const std::string& type) {
  const auto open = type.find('{'), close = type.find('}');
  std::vector<std::string> out;
  if (open == std::string::npos || close == std::string::npos || close < open) return out;
  std::string word;
  for (auto i = open + 1; i <= close; ++i) {
    if (type[i] == ',' || type[i] == '}') {
      out.push_back(word);
      word.clear();
    } else {
      word += type[i];
    }
  }
  return out;
}

Option read_option(const CLI::Option& o) {
  Option out;
  for (const auto& n : o.get_snames()) out.names.push_back("-" + n);
  for (const auto& n : o.get_lnames()) out.names.push_back("--" + n);
  if (out.names.empty()) out.positional = o.get_name(true);
  out.description = o.get_description();
  out.initial = o.get_default_str();
  out.takes_value = o.get_items_expected_max() > 0;
  out.required = o.get_required();
  out.repeatable = o.get_items_expected_max() > 1;
  if (out.takes_value) out.choices = choices_of(o.get_type_name());
  return out;
}

Command read_command(const CLI::App& app, std::vector<std::string> path) {
  Command out;
  path.push_back(app.get_name());
  out.path = path;
  out.description = app.get_description();
  for (const auto* o : app.get_options())
    if (!o->get_group().empty()) out.options.push_back(read_option(*o));
  for (const auto* c : app.get_subcommands({}))
    if (!c->get_group().empty()) out.commands.push_back(read_command(*c, path));
  return out;
}

}  // namespace

std::string Command::words() const {
  std::string out;
  for (size_t i = 1; i < path.size(); ++i) out += (i > 1 ? " " : "") + path[i];
  return out;
}

Command command_tree(const CLI::App& app) {
  return read_command(app, {});
}

}  // namespace ebclr::manual
