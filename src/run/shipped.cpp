#include "run/shipped.h"

namespace ebclr::run {

std::optional<std::string> find_shipped(std::string_view name) {
  for (const auto& c : shipped_configs())
    if (c.name == name) return c.text;
  return std::nullopt;
}

}  // namespace ebclr::run
