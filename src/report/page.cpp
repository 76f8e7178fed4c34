#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "core/csv.h"
#include "core/error.h"
#include "core/files.h"
#include "report/assets.h"
#include "report/chart.h"

namespace ebclr::report {
namespace {

const char* tone_class(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "good";
    case Tone::kBad:
      return "bad";
    case Tone::kMuted:
      return "muted";
    case Tone::kBest:
      return "best";
    case Tone::kPlain:
      break;
  }
  return "plain";
}

/// Length of the UTF-8 sequence at `at`, 0 when there is none.
size_t sequence(const std::string& s, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : (lead & 0xF0) == 0xE0       ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || at + length > s.size()) return 0;
  for (size_t k = 1; k < length; ++k)
    if ((byte(at + k) & 0xC0) != 0x80) return 0;
  const unsigned char second = byte(at + 1);
  // Overlong forms, surrogates and what lies beyond Unicode.
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90))
    return 0;
  return length;
}

/// Whether a cell holds a number, perhaps with a unit or an interval.
bool numeric(const std::string& text) {
  size_t i = 0;
  for (const char* sign : {"\u2212", "\u00b1", "+", "-", "<", ">", "~", "x"})
    if (text.starts_with(sign)) {
      i = std::string_view(sign).size();
      break;
    }
  while (i < text.size() && text[i] == ' ') ++i;
  return i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) || text[i] == '.');
}

bool blank(const std::string& text) {
  return text.empty() || text == "-" || text == "\u2013" || text == "\u2014" || text == "n/a" ||
         text == "nan";
}

std::vector<bool> numeric_columns(const Table& table, size_t columns) {
  std::vector<bool> out(columns, false);
  for (size_t c = 1; c < columns; ++c) {
    size_t numbers = 0, words = 0;
    for (const auto& row : table.rows) {
      if (c >= row.size() || blank(row[c].text)) continue;
      ++(numeric(row[c].text) ? numbers : words);
    }
    out[c] = words == 0 || numbers > words;
  }
  return out;
}

size_t column_count(const Table& table) {
  size_t n = table.columns.size();
  for (const auto& row : table.rows) n = std::max(n, row.size());
  return n;
}

/// The caption stands outside of the box that scrolls, so that it can be read on a phone.
std::string open_table(const std::string& caption, const char* attributes) {
  return fmt::format(
      "<figure class=\"tabled\">{}<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{}\"><table{}>",
      caption.empty() ? "" : "<figcaption>" + escape(caption) + "</figcaption>",
      escape(caption.empty() ? "Table" : caption), attributes);
}

constexpr const char* kCloseTable = "</tbody></table></div></figure>\n";

/// Characters of a text, not bytes.
size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Type, width and height of a picture file, from its header; an empty type when it is neither.
struct PictureHead {
  std::string type;
  uint32_t width = 0, height = 0;
};

PictureHead head_of(const std::vector<std::byte>& file) {
  auto byte = [&](size_t at) { return static_cast<uint32_t>(file[at]); };
  auto word = [&](size_t at) {
    return byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
  };
  if (file.size() >= 24 && word(0) == 0x89504E47u) return {"image/png", word(16), word(20)};
  if (file.size() < 4 || byte(0) != 0xFF || byte(1) != 0xD8) return {};
  // JPEG: segments of marker and length until the one with the frame.
  for (size_t at = 2; at + 9 < file.size() && byte(at) == 0xFF;) {
    const uint32_t marker = byte(at + 1);
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    if (frame) return {"image/jpeg", byte(at + 7) << 8 | byte(at + 8), byte(at + 5) << 8 | byte(at + 6)};
    at += 2 + (byte(at + 2) << 8 | byte(at + 3));
  }
  return {};
}

std::string figure(const std::vector<std::byte>& image, const std::string& caption) {
  const auto head = head_of(image);
  if (head.width == 0 || head.height == 0)
    core::usage_error("report", fmt::format("the picture '{}' is neither PNG nor JPEG", caption));
  return fmt::format(
      "<figure class=\"picture\"><img src=\"{}\" alt=\"{}\" width=\"{}\" "
      "height=\"{}\"><figcaption>{}</figcaption></figure>\n",
      data_address(image), escape(caption), (head.width + 1) / 2, (head.height + 1) / 2, escape(caption));
}

}  // namespace

std::string data_address(const std::vector<std::byte>& image) {
  return fmt::format("data:{};base64,{}", head_of(image).type, base64(image.data(), image.size()));
}

std::string escape(const std::string& text) {
  std::string out;
  out.reserve(text.size() + 16);
  for (size_t i = 0; i < text.size();) {
    const size_t length = sequence(text, i);
    if (length == 0) {
      out += "\uFFFD";
      ++i;
      continue;
    }
    const char c = text[i];
    if (length > 1) {
      out.append(text, i, length);
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      out += "\uFFFD";
    } else {
      out += c;
    }
    i += length;
  }
  return out;
}

Page::Page(std::string title, std::string subtitle)
    : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

void Page::heading(const std::string& text, int level) {
  level = std::clamp(level, 2, 4);
  std::string id;
  for (char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      id += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!id.empty() && id.back() != '-') {
      id += '-';
    }
  }
  while (!id.empty() && id.back() == '-') id.pop_back();
  if (id.empty()) id = "part";
  const auto taken = [&](const std::string& name) {
    return std::any_of(contents_.begin(), contents_.end(), [&](const Entry& e) { return e.id == name; });
  };
  std::string unique = id;
  for (int k = 2; taken(unique); ++k) unique = fmt::format("{}-{}", id, k);
  // Level 0 in the list: inside of details, not shown in the table of contents but its name is taken.
  contents_.push_back({unique, text, open_details_ > 0 ? 0 : level});
  body_ += fmt::format("<h{0} id=\"{1}\">{2}</h{0}>\n", level, unique, escape(text));
}

void Page::text(const std::string& paragraph) {
  body_ += "<p>" + escape(paragraph) + "</p>\n";
}

void Page::callout(Tone tone, const std::string& title, const std::string& text) {
  const char* mark = tone == Tone::kGood || tone == Tone::kBest ? "\u2713"
                     : tone == Tone::kBad                       ? "\u2717"
                     : tone == Tone::kMuted                     ? "?"
                                                                : "i";
  body_ += fmt::format(
      "<div class=\"callout {}\" role=\"note\"><span class=\"mark\" aria-hidden=\"true\">{}</span><div><p "
      "class=\"what\">{}</p>{}</div></div>\n",
      tone_class(tone), mark, escape(title), text.empty() ? "" : "<p>" + escape(text) + "</p>");
}

void Page::table(const Table& table) {
  const size_t columns = column_count(table);
  const auto right = numeric_columns(table, columns);
  body_ += open_table(table.caption, "");
  if (!table.columns.empty()) {
    body_ += "<thead><tr>";
    for (size_t c = 0; c < columns; ++c) {
      body_ += fmt::format("<th scope=\"col\"{}>{}</th>", right[c] ? " class=\"n\"" : "",
                           c < table.columns.size() ? escape(table.columns[c]) : "");
    }
    body_ += "</tr></thead>";
  }
  body_ += "<tbody>";
  for (const auto& row : table.rows) {
    body_ += "<tr>";
    for (size_t c = 0; c < columns; ++c) {
      const Cell cell = c < row.size() ? row[c] : Cell{};
      std::string classes = right[c] ? "n" : "";
      if (characters(cell.text) > (c == 0 ? 28 : 20)) classes += classes.empty() ? "w" : " w";
      if (cell.tone != Tone::kPlain) (classes += classes.empty() ? "" : " ") += tone_class(cell.tone);
      body_ += c == 0 ? "<th scope=\"row\"" : "<td";
      if (!classes.empty()) body_ += fmt::format(" class=\"{}\"", classes);
      if (!cell.hint.empty()) body_ += fmt::format(" title=\"{}\"", escape(cell.hint));
      body_ += fmt::format(">{}{}", escape(cell.text), c == 0 ? "</th>" : "</td>");
    }
    body_ += "</tr>";
  }
  body_ += kCloseTable;
}

void Page::chart(const Chart& chart) {
  body_ += chart_html(chart);
}

void Page::charts(const std::vector<Chart>& charts) {
  std::string inner;
  for (const auto& c : charts) inner += chart_html(c);
  body_ += "<div class=\"multiples\">" + inner + "</div>\n";
}

void Page::picture(const std::vector<std::byte>& image, const std::string& caption) {
  body_ += figure(image, caption);
}

void Page::pictures(const std::vector<Picture>& pictures) {
  std::string inner;
  for (const auto& p : pictures) inner += figure(p.image, p.caption);
  body_ += "<div class=\"strip\" tabindex=\"0\" role=\"group\" aria-label=\"Pictures\">" + inner + "</div>\n";
}

void Page::matrix(const Matrix& m) {
  const size_t n = m.names.size();
  bool square = m.counts.size() == n;
  for (const auto& row : m.counts) square = square && row.size() == n;
  if (!square || n == 0)
    core::usage_error(
        "report",
        fmt::format("a matrix of {} names has {} rows; it must be square and not empty", n, m.counts.size()));
  body_ += open_table(m.caption.empty() ? "Confusion matrix" : m.caption, " class=\"matrix\"");
  body_ += "<thead><tr><th scope=\"col\">truth \u2193 prediction \u2192</th>";
  for (const auto& name : m.names) body_ += "<th scope=\"col\"><span>" + escape(name) + "</span></th>";
  body_ += "</tr></thead><tbody>";
  for (size_t r = 0; r < n; ++r) {
    int64_t total = 0;
    for (int64_t v : m.counts[r]) total += v;
    body_ += "<tr><th scope=\"row\">" + escape(m.names[r]) + "</th>";
    for (size_t c = 0; c < n; ++c) {
      const double share = total > 0 ? static_cast<double>(m.counts[r][c]) / static_cast<double>(total) : 0;
      // Ten strengths of one colour, right and wrong; the stylesheet knows them in light and dark.
      const int strength = share > 0 ? std::clamp(static_cast<int>(share * 10) + 1, 1, 10) : 0;
      body_ += fmt::format("<td class=\"m{}{}\" title=\"{}\">{}</td>", strength, r == c ? " hit" : "",
                           escape(fmt::format("{} taken for {}: {} of {} ({:.1f} %)", m.names[r], m.names[c],
                                              m.counts[r][c], total, 100 * share)),
                           m.counts[r][c]);
    }
    body_ += "</tr>";
  }
  body_ += kCloseTable;
}

void Page::map(const PointMap& map) {
  body_ += map_html(map);
}

void Page::maps(const std::vector<PointMap>& maps) {
  std::string inner;
  for (const auto& m : maps) inner += map_html(m);
  body_ += "<div class=\"multiples\">" + inner + "</div>\n";
}

void Page::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<dl class=\"facts\">";
  for (const auto& [name, value] : facts)
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
  body_ += "</dl>\n";
}

void Page::code(const std::string& text) {
  body_ += "<div class=\"code\"><pre tabindex=\"0\"><code>" + escape(text) + "</code></pre></div>\n";
}

void Page::begin_details(const std::string& summary) {
  ++open_details_;
  body_ += "<details><summary>" + escape(summary) + "</summary><div class=\"inside\">\n";
}

void Page::end_details() {
  if (open_details_ == 0) core::usage_error("report", "end_details() without begin_details()");
  --open_details_;
  body_ += "</div></details>\n";
}

std::string Page::html() const {
  const std::string script(kPageJs);
  // Nothing may be fetched and no script may run but ours: whatever text a run carries cannot change that.
  const auto hex = core::sha256(std::as_bytes(std::span(script.data(), script.size())));
  std::vector<std::byte> digest;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    digest.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
      "'unsafe-inline'; script-src 'sha256-{}'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n"
      "<body>\n<header><h1>{}</h1>{}</header>\n",
      base64(digest.data(), digest.size()), escape(title_), kPageCss, escape(title_),
      subtitle_.empty() ? "" : "<p class=\"subtitle\">" + escape(subtitle_) + "</p>");
  const auto listed = std::count_if(contents_.begin(), contents_.end(),
                                    [](const Entry& e) { return e.level == 2 || e.level == 3; });
  out += "<div class=\"page\">\n";
  if (listed > 1) {
    out += "<nav aria-label=\"Contents\"><ul>";
    for (const auto& e : contents_) {
      if (e.level != 2 && e.level != 3) continue;
      out += fmt::format("<li class=\"l{}\"><a href=\"#{}\">{}</a></li>", e.level, e.id, escape(e.text));
    }
    out += "</ul></nav>\n";
  }
  out += "<main>\n" + body_;
  for (int k = 0; k < open_details_; ++k) out += "</div></details>\n";
  out += "</main>\n</div>\n<script>" + script + "</script>\n</body>\n</html>\n";
  return out;
}

std::string to_markdown(const Table& table) {
  const size_t columns = column_count(table);
  if (columns == 0) return {};
  const auto right = numeric_columns(table, columns);
  auto clean = [](const std::string& text) {
    std::string out;
    for (char c : text) {
      if (c == '|' || c == '*') {  // a mark in a bold cell would end it
        (out += '\\') += c;
      } else if (c == '\n') {
        out += "<br>";
      } else if (c == '<') {
        out += "&lt;";
      } else if (c != '\r') {
        out += c;
      }
    }
    return out;
  };
  std::string out;
  if (!table.caption.empty()) out += clean(table.caption) + "\n\n";
  out += "|";
  for (size_t c = 0; c < columns; ++c)
    out += " " + (c < table.columns.size() ? clean(table.columns[c]) : "") + " |";
  out += "\n|";
  for (size_t c = 0; c < columns; ++c) out += right[c] ? "--:|" : "---|";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (size_t c = 0; c < columns; ++c) {
      const std::string text = c < row.size() ? clean(row[c].text) : "";
      const bool bold = c < row.size() && row[c].tone == Tone::kBest && !text.empty();
      out += bold ? " **" + text + "** |" : " " + text + " |";
    }
    out += "\n";
  }
  return out;
}

std::string to_csv(const Table& table) {
  const size_t columns = column_count(table);
  auto names = table.columns;
  names.resize(columns);
  std::string out = core::csv_line(names);
  for (const auto& row : table.rows) {
    std::vector<std::string> fields;
    for (const auto& cell : row) fields.push_back(cell.text);
    fields.resize(columns);
    out += core::csv_line(fields);
  }
  return out;
}

}  // namespace ebclr::report
