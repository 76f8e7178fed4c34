#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `eval linear | knn | all | transfer | curve`, `embed`, `map` and `compare`.
void add_eval_commands(CLI::App& app);

}  // namespace ebclr::cli
