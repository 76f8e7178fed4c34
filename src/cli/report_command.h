#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `report`.
void add_report_command(CLI::App& app);

}  // namespace ebclr::cli
