#pragma once
// The options that build a configuration, shared by `train` and `config show`.

#include <string>
#include <vector>

#include "cli/data_options.h"
#include "run/config.h"

namespace CLI {
class App;
}

namespace ebclr::cli {

struct ConfigOptions : DataOptions {
  std::string config;
  std::vector<std::string> sets;
  int64_t epochs = 0, seed = -1;
};

/// Adds --config, --set, --epochs, --seed and the options of cli/data_options.h.
void add_config_options(CLI::App& command, ConfigOptions& options);
/// The layers that they mean, lowest first.
std::vector<run::Layer> layers_of(const ConfigOptions& options, std::vector<std::string>& warnings);

}  // namespace ebclr::cli
