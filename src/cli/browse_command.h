#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr browse`.
void add_browse_command(CLI::App& app);

}  // namespace ebclr::cli
