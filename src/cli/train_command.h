#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `train`.
void add_train_command(CLI::App& app);

}  // namespace ebclr::cli
