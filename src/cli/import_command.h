#pragma once

namespace CLI {
class App;
}

namespace ebclr::cli {

/// Registers `import`.
void add_import_command(CLI::App& app);

}  // namespace ebclr::cli
