#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `config show | keys | list`.
void add_config_commands(CLI::App& app);

}  // namespace ebclr::cli
