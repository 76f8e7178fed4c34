#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `plot`.
void add_plot_command(CLI::App& app);

}  // namespace ebclr::cli
