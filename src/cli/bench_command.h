#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `bench step | sampler | conv | embed | augment | knn | all`.
void add_bench_commands(CLI::App& app);

}  // namespace ebclr::cli
