#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Adds `reproduce`, and the hidden command by which it carries out one run.
void add_reproduce_commands(CLI::App& app);

}  // namespace ebclr::cli
