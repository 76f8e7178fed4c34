#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr outliers`.
void add_outliers_command(CLI::App& app);

}  // namespace ebclr::cli
