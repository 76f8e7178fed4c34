#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/text.h"

namespace ebclr::cli {

/// Prints an answer as JSON. Names of files need not be UTF-8, and JSON must be: other bytes become U+FFFD.
template <class Json>
void print_answer(const Json& answer) {
  fmt::print("{}\n", answer.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

/// A name in a command that may be copied from the terminal.
inline std::string command_word(const std::string& name) {
  return core::one_line(core::shell_word(name));
}

}  // namespace ebclr::cli
