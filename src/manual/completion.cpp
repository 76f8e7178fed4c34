// Completion scripts. Each holds the whole tree, so that completing starts no program.

#include <fmt/format.h>

#include "manual/command_tree.h"

namespace ebclr::manual {
namespace {

template <class F>
void each_command(const Command& c, const F& f) {
  f(c);
  for (const auto& below : c.commands) each_command(below, f);
}

std::string joined(const std::vector<std::string>& words, const std::string& between = " ") {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i ? between : "") + words[i];
  return out;
}

/// 'text' for a shell's single quotes.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Words for an option's value, or for a positional of a command.
std::vector<std::string> words_for(const Command& c, const Option& o, const Values& values) {
  if (!o.choices.empty()) return o.choices;
  std::vector<std::string> keys = o.names;
  if (!o.positional.empty()) keys = {c.words() + " " + o.positional};
  for (const auto& key : keys)
    if (const auto it = values.find(key); it != values.end()) return it->second;
  return {};
}

std::vector<std::string> names_of(const Command& c) {
  std::vector<std::string> names;
  for (const auto& o : c.options) names.insert(names.end(), o.names.begin(), o.names.end());
  return names;
}

std::vector<std::string> commands_of(const Command& c) {
  std::vector<std::string> names;
  for (const auto& below : c.commands) names.push_back(below.path.back());
  return names;
}

/// Positional words of a command; empty: files and folders.
std::vector<std::string> positional_words(const Command& c, const Values& values) {
  std::vector<std::string> out;
  for (const auto& o : c.options)
    if (!o.positional.empty())
      for (auto& w : words_for(c, o, values)) out.push_back(w);
  return out;
}

}  // namespace

std::string bash_completion(const Command& root, const Values& values) {
  const auto name = root.path.front();
  std::string paths, options, positionals, arguments;
  each_command(root, [&](const Command& c) {
    const auto at = quoted(c.words());
    if (!c.commands.empty())
      paths += fmt::format("    {}) commands={} ;;\n", at, quoted(joined(commands_of(c))));
    options += fmt::format("    {}) options={} ;;\n", at, quoted(joined(names_of(c))));
    if (const auto words = positional_words(c, values); !words.empty())
      positionals += fmt::format("    {}) words={} ;;\n", at, quoted(joined(words)));
    for (const auto& o : c.options) {
      if (!o.takes_value || o.names.empty()) continue;
      std::vector<std::string> patterns;
      for (const auto& n : o.names) patterns.push_back(quoted(c.words() + " " + n));
      arguments += fmt::format("    {}) value=1; words={} ;;\n", joined(patterns, "|"),
                               quoted(joined(words_for(c, o, values))));
    }
  });
  return fmt::format(R"(# bash completion for {0}; generated from its command definitions
_{0}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} path= commands= options= words= value= i
  # The command: words before the cursor as long as they name one.
  for ((i = 1; i < COMP_CWORD; i++)); do
    commands=
    case $path in
{1}    esac
    case " $commands " in
      *" ${{COMP_WORDS[i]}} "*) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
      *) break ;;
    esac
  done
  commands=
  case $path in
{1}  esac
  case $path in
{2}  esac
  case "$path $prev" in
{3}  esac
  if [ -n "$value" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [ ${{#COMPREPLY[@]}} -gt 0 ] || compopt -o filenames 2>/dev/null
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
    [[ "${{COMPREPLY[0]}}" == *= ]] && compopt -o nospace 2>/dev/null
    return 0
  fi
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
    return 0
  fi
  if [ -n "$commands" ]; then
    COMPREPLY=($(compgen -W "$commands" -- "$cur"))
    return 0
  fi
  case $path in
{4}  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || compopt -o filenames 2>/dev/null
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}}
complete -F _{0} {0}
)",
                     name, paths, options, arguments, positionals);
}

std::string zsh_completion(const Command& root, const Values& values) {
  // One function for each command, by the names of the words before it.
  const auto name = root.path.front();
  const auto function = [&](const Command& c) {
    std::string out = "_" + joined(c.path, "_");
    for (auto& ch : out)
      if (ch == '-') ch = '_';
    return out;
  };
  const auto text = [](std::string t) {  // inside [..] and after :
    std::string out;
    for (const char c : t) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  };
  const auto action = [&](const std::vector<std::string>& words) {
    std::vector<std::string> plain;
    for (const auto& w : words) plain.push_back(text(w));
    return words.empty() ? std::string("_files") : "(" + joined(plain) + ")";
  };
  std::string out = fmt::format("#compdef {}\n# generated from its command definitions\n", name);
  each_command(root, [&](const Command& c) {
    out += fmt::format("\n{}() {{\n", function(c));
    if (!c.commands.empty()) {
      out += "  local line state\n  _arguments -C \\\n";
    } else {
      out += "  _arguments \\\n";
    }
    for (const auto& o : c.options) {
      for (const auto& n : o.names)
        out += fmt::format(
            "    {} \\\n",
            quoted(fmt::format("{}{}[{}]{}", o.repeatable ? "*" : "", n, text(o.description),
                               o.takes_value ? ":value:" + action(words_for(c, o, values)) : "")));
    }
    if (c.commands.empty()) {
      const auto words = positional_words(c, values);
      out += fmt::format("    {}\n}}\n", quoted("*:argument:" + action(words)));
      return;
    }
    std::string list, cases;
    for (const auto& below : c.commands) {
      list += fmt::format(" {}", quoted(below.path.back() + ":" + text(below.description)));
      cases += fmt::format("        {}) {} ;;\n", below.path.back(), function(below));
    }
    out += fmt::format(R"(    '1: :->command' \
    '*::argument:->rest'
  case $state in
    command)
      local -a names=({})
      _describe command names
      ;;
    rest)
      case $line[1] in
{}      esac
      ;;
  esac
}}
)",
                       list, cases);
  });
  return out + fmt::format("\n_{} \"$@\"\n", name);
}

std::string fish_completion(const Command& root, const Values& values) {
  const auto name = root.path.front();
  std::string out = fmt::format(R"(# fish completion for {0}; generated from its command definitions
# The words of the command line that are not options, against those given: is this the command?
function __{0}_at
    set -l words (commandline -opc)
    set -l plain
    for w in $words[2..-1]
        string match -q -- '-*' $w; and break
        set -a plain $w
    end
    set -l want (string split ' ' -- $argv[1])
    test -z "$argv[1]"; and set want
    test (count $plain) -ge (count $want); or return 1
    for i in (seq (count $want))
        test "$plain[$i]" = "$want[$i]"; or return 1
    end
    test "$argv[2]" = exact; and test (count $plain) -ne (count $want); and return 1
    return 0
end
)",
                                name);
  each_command(root, [&](const Command& c) {
    const auto at = [&](const char* how) {
      return quoted(fmt::format("__{}_at \"{}\" {}", name, c.words(), how));
    };
    for (const auto& below : c.commands)
      out += fmt::format("complete -c {} -f -n {} -a {} -d {}\n", name, at("exact"),
                         quoted(below.path.back()), quoted(below.description));
    if (const auto words = positional_words(c, values); !words.empty())
      out += fmt::format("complete -c {} -n {} -a {}\n", name, at("any"), quoted(joined(words)));
    for (const auto& o : c.options) {
      std::string names;
      for (const auto& n : o.names)
        names += n.rfind("--", 0) == 0 ? " -l " + n.substr(2) : " -s " + n.substr(1);
      if (names.empty()) continue;
      const auto words = words_for(c, o, values);
      out += fmt::format("complete -c {} -n {}{}{}{} -d {}\n", name, at(c.path.size() == 1 ? "exact" : "any"),
                         names, o.takes_value ? " -r" : "",
                         words.empty() ? "" : " -a " + quoted(joined(words)), quoted(o.description));
    }
  });
  return out;
}

}  // namespace ebclr::manual
