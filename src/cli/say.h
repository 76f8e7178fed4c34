#pragma once
// Messages beside the work. Whoever reads them may have gone (a closed pager, `tee` after Ctrl-C, a closed
// terminal), and the work goes on all the same.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace ebclr::cli {

/// Writes what can be written; unlike fmt::print it never throws when that fails.
inline void say_to(std::FILE* file, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

/// A message on standard error.
template <class... A>
void say(fmt::format_string<A...> format, A&&... values) {
  say_to(stderr, fmt::format(format, std::forward<A>(values)...));
}

/// A result on standard output that is not the last word of a command; main says at the end what was not
/// written.
template <class... A>
void say_out(fmt::format_string<A...> format, A&&... values) {
  say_to(stdout, fmt::format(format, std::forward<A>(values)...));
}

}  // namespace ebclr::cli
