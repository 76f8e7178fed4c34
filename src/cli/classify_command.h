#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// `ebclr classify`.
void add_classify_command(CLI::App& app);

}  // namespace ebclr::cli
