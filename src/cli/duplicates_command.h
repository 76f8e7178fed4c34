#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr duplicates`.
void add_duplicates_command(CLI::App& app);

}  // namespace ebclr::cli
