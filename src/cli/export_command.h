#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr export`.
void add_export_command(CLI::App& app);

}  // namespace ebclr::cli
