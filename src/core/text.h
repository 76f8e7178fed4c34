#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::core {

/// The candidate with the smallest edit distance to `word`, if it is near enough to be a typing error.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Seconds as "45 s", "3 min 20 s", "2 h 05 min".
std::string human_seconds(double seconds);

/// Items joined by a separator.
std::string join(const std::vector<std::string>& items, std::string_view separator);

/// Text that stays on its line and does nothing to a terminal: when it has control characters, they and
/// backslashes are written as in C (\n, \x1b, \\); other text is left as it is.
std::string one_line(std::string_view text);

/// A word as a shell reads it: in single quotes unless all of its letters are plain.
std::string shell_word(std::string_view word);

}  // namespace ebclr::core
