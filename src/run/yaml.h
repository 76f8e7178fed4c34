#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

namespace ebclr::run {

/// A YAML document as this project writes and reads them: plain keys, no anchors or aliases (with which a few
/// lines can stand for gigabytes, or for themselves), at most a megabyte. Throws Error naming origin and
/// line.
YAML::Node load_yaml(const std::string& text, const std::string& origin, std::string_view component);

/// A value as YAML that reads back as the same text, whatever it holds.
std::string yaml_scalar(const std::string& value);

}  // namespace ebclr::run
