#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `fid`.
void add_fid_command(CLI::App& app);

}  // namespace ebclr::cli
