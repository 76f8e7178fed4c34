// Manual pages in roff, section 1.

#include <fmt/format.h>

#include "manual/command_tree.h"

namespace ebclr::manual {
namespace {

/// Text that roff shows as it is.
std::string escaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) out += "\\&";
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else {
      out += c;
    }
  }
  return out;
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i ? between : "") + words[i];
  return out;
}

/// "--out PATH"-like head of an option's paragraph.
std::string head_of(const Option& o) {
  if (!o.positional.empty()) return fmt::format("\\fI{}\\fR", escaped(o.positional));
  std::vector<std::string> names;
  for (const auto& n : o.names) names.push_back("\\fB" + escaped(n) + "\\fR");
  std::string value;
  if (o.takes_value)
    value = o.choices.empty() ? " \\fIVALUE\\fR" : " \\fI" + escaped(joined(o.choices, "|")) + "\\fR";
  return joined(names, ", ") + value;
}

void write_options(const Command& c, std::string& out) {
  for (const auto& o : c.options) {
    auto text = o.description;
    if (!o.initial.empty() && o.takes_value) text += fmt::format(" (default: {})", o.initial);
    if (o.repeatable && o.positional.empty()) text += "; may be repeated";
    out += fmt::format(".TP\n{}\n{}\n", head_of(o), escaped(text.empty() ? "-" : text));
  }
}

std::string synopsis(const Command& c) {
  std::string out = fmt::format(".B {}\n", escaped(joined(c.path, " ")));
  if (!c.commands.empty()) return out + ".I COMMAND\n[\\fIOPTIONS\\fR]\n";
  out += "[\\fIOPTIONS\\fR]\n";
  for (const auto& o : c.options)
    if (!o.positional.empty())
      out += fmt::format("{}\\fI{}\\fR{}{}\n", o.required ? "" : "[", escaped(o.positional),
                         o.repeatable ? " ..." : "", o.required ? "" : "]");
  return out;
}

std::string head(const std::string& name, const std::string& version, const std::string& description) {
  return fmt::format(".TH {} 1 \"\" \"ebclr {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", name, version,
                     escaped(name), escaped(description));
}

void write_below(const Command& c, std::string& out) {
  for (const auto& below : c.commands) {
    out += fmt::format(".SH {}\n{}\n.PP\n{}", escaped(below.words()), escaped(below.description),
                       synopsis(below));
    write_options(below, out);
    write_below(below, out);
  }
}

}  // namespace

std::map<std::string, std::string> manual_pages(const Command& root, const std::string& version) {
  std::map<std::string, std::string> pages;
  const auto name = root.path.front();
  const auto after = root.description.find(": ");
  std::string page =
      head(name, version, after == std::string::npos ? root.description : root.description.substr(after + 2));
  page += ".SH SYNOPSIS\n" + synopsis(root) + ".SH OPTIONS\n";
  write_options(root, page);
  page += ".SH COMMANDS\nEach has a page of its own and answers \\-\\-help.\n";
  for (const auto& c : root.commands)
    page +=
        fmt::format(".TP\n\\fB{}\\-{}\\fR(1)\n{}\n", name, escaped(c.path.back()), escaped(c.description));
  page +=
      ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n1\nthe run failed\n.TP\n2\nwrong usage or "
      "input\n.TP\n130\ninterrupted; what "
      "was done is saved\n"
      ".SH ENVIRONMENT\n.TP\nEBCLR_DATA\nwhere data sets are kept (default: the user's cache folder)\n";
  pages[name + ".1"] = page;
  for (const auto& c : root.commands) {
    const auto title = name + "-" + c.path.back();
    std::string text = head(title, version, c.description) + ".SH SYNOPSIS\n" + synopsis(c) + ".SH OPTIONS\n";
    write_options(c, text);
    write_below(c, text);
    text += fmt::format(".SH SEE ALSO\n\\fB{}\\fR(1)\n", name);
    pages[title + ".1"] = text;
  }
  return pages;
}

}  // namespace ebclr::manual
