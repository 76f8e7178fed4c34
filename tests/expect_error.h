#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace ebclr::testing {

/// Runs f, expects a core::Error with that exit code whose text holds every fragment; returns its text.
template <class F, class... Fragments>
std::string expect_error(core::ExitCode code, F&& f, const Fragments&... fragments) {
  try {
    f();
  } catch (const core::Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << text;
    const auto check = [&](const std::string& fragment) {
      EXPECT_NE(text.find(fragment), std::string::npos) << "'" << text << "' lacks '" << fragment << "'";
    };
    (check(fragments), ...);
    EXPECT_EQ(text.find('\n'), std::string::npos) << "more than one line: " << text;
    return text;
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace ebclr::testing
