#pragma once
// What the files of this room share in their messages; not for other rooms.

#include <exception>
#include <string>

namespace ebclr::data {

/// An error's text without its leading component, for use inside another message.
inline std::string bare(const std::exception& e) {
  const std::string text = e.what();
  const auto end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

}  // namespace ebclr::data
