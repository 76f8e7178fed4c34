#include "core/json.h"

#include <nlohmann/json.hpp>

namespace ebclr::core {
namespace {

// Brackets count only outside of strings; a text that is no JSON may be misread here and is refused later.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  // The parser takes a zero byte for the end of the text, whatever follows.
  if (too_deep(text) || text.find('\0') != std::string_view::npos)
    return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

int64_t whole_number(const nlohmann::json& number) {
  // What has no sign and is too large would be read as negative.
  const bool beyond = number.is_number_unsigned() && number.get<uint64_t>() > INT64_MAX;
  return (beyond ? nlohmann::json() : number).get_ref<const int64_t&>();
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

double number_of(const nlohmann::json& object, const char* key, double otherwise) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

}  // namespace ebclr::core
