#pragma once

namespace ebclr::launcher {

/// Text that the program prints for a command line, e.g. "data get --help".
struct Answer {
  const char* words;
  const char* text;
};

/// All of them, ended by nullptr; generated from the command definitions (cli/describe.cpp).
extern const Answer kAnswers[];

}  // namespace ebclr::launcher
