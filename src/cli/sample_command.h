#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `sample` and `energy`.
void add_sample_commands(CLI::App& app);

}  // namespace ebclr::cli
