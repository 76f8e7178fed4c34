#pragma once

#include <string_view>

namespace ebclr::report {

/// Text of page.css and page.js.
extern const std::string_view kPageCss, kPageJs;

}  // namespace ebclr::report
