#pragma once

#include <string_view>

namespace ebclr::web {

/// The chart library and its style (third_party/uplot).
extern const std::string_view kUplotJs, kUplotCss;

}  // namespace ebclr::web
