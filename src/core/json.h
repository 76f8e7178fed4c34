#pragma once
// JSON that came from a file: whoever wrote it may have meant harm.

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ebclr::core {

/// Brackets inside brackets that a file of ours may have. Copying and writing a value takes stack for each.
inline constexpr int kMaxJsonDepth = 64;

/// The value of a text, discarded (is_discarded()) where it is no JSON, nested deeper than kMaxJsonDepth, or
/// has zero bytes. Never throws.
nlohmann::json parse_json(std::string_view text);

/// A count; throws json::type_error for a fraction and for numbers beyond an int64_t, of which
/// get<int64_t>() would make anything.
int64_t whole_number(const nlohmann::json& number);

/// The text of a key; empty where there is none.
std::string text_of(const nlohmann::json& object, const char* key);
/// The number of a key; `otherwise` where there is none.
double number_of(const nlohmann::json& object, const char* key,
                 double otherwise = std::numeric_limits<double>::quiet_NaN());

}  // namespace ebclr::core
