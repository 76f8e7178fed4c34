#pragma once

#include <string_view>

namespace ebclr::watch {

/// Text of page.html, page.css and page.js.
extern const std::string_view kPageHtml, kPageCss, kPageJs;

}  // namespace ebclr::watch
