#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Gives the root its name, version and every command: the one table of them.
void add_commands(CLI::App& app);

}  // namespace ebclr::cli
