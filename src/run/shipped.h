#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebclr::run {

/// A configuration that comes with the program.
struct ShippedConfig {
  std::string name;  ///< e.g. "ebclr/cifar10_b128"
  std::string text;
};

/// All of them, by name.
const std::vector<ShippedConfig>& shipped_configs();
/// The text of one; nullopt when there is none of that name.
std::optional<std::string> find_shipped(std::string_view name);

}  // namespace ebclr::run
