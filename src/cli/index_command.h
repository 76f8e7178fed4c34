#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr index` and `ebclr search`.
void add_index_commands(CLI::App& app);

}  // namespace ebclr::cli
