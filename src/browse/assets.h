#pragma once

#include <string_view>

namespace ebclr::browse {

/// Text of page.html, page.css and page.js.
extern const std::string_view kPageHtml, kPageCss, kPageJs;

}  // namespace ebclr::browse
