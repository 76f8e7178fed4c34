#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `eval linear | knn | all | transfer | curve`.
void add_eval_commands(CLI::App& app);
/// Registers `curve` below `eval`.
void add_curve_command(CLI::App& eval);
/// Registers `compare`.
void add_compare_command(CLI::App& app);
/// Registers `embed`.
void add_embed_command(CLI::App& app);
/// Registers `map`.
void add_map_command(CLI::App& app);

}  // namespace ebclr::cli
