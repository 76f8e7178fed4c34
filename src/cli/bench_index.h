#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr bench search`, `bench duplicates` and `bench outliers`.
void add_index_benches(CLI::App& group);

}  // namespace ebclr::cli
