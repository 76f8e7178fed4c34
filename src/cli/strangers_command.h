#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Adds `eval strangers`.
void add_strangers_command(CLI::App& eval);

}  // namespace ebclr::cli
