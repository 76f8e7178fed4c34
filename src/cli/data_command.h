#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `data list | get | show | stats`.
void add_data_commands(CLI::App& app);

}  // namespace ebclr::cli
