#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ebclr::core {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, word.size() / 2) + 1;
  for (const auto& c : candidates) {
    // A key given without its section ("lambda" for "method.lambda") is as near as can be. The distance is
    // never less than the difference of the lengths.
    const size_t least = std::max(word.size(), c.size()) - std::min(word.size(), c.size());
    size_t d = least;
    if (c.size() > word.size() && c.ends_with(word) && c[c.size() - word.size() - 1] == '.')
      d = 1;
    else if (least < best_distance)
      d = edit_distance(word, c);
    if (d < best_distance) best_distance = d, best = &c;
  }
  return best ? std::optional(*best) : std::nullopt;
}

std::string human_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<long>(std::lround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  return fmt::format("{}", fmt::join(items, separator));
}

std::string one_line(std::string_view text) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  // U+0080 to U+009F, which some terminals obey as well: c2 and a byte below a0.
  const auto late_control = [&](size_t i) {
    return text[i] == '\xc2' && i + 1 < text.size() &&
           (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
  };
  bool plain = true;
  for (size_t i = 0; i < text.size() && plain; ++i) plain = !control(text[i]) && !late_control(i);
  if (plain) return std::string(text);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (late_control(i)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[++i]));
      continue;
    }
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else if (control(c)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

}  // namespace ebclr::core
